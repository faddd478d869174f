"""Compile kernels before a query or a box needs them. numba keeps what it compiled on disk, so this takes long once.

The kernels are divided into shares. A process that starts compiles the missing shares of its parts in the background
(`compile_aside`): in processes of their own, one for each core, at a lower priority. A part that needs a kernel earlier
compiles it itself, or waits if it is being compiled (`kernel_cache.py`). A file for each share says that it is complete
for the sources as they are.

`python -m lakerunner.services.warm` compiles all missing shares and waits for them.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TypeAlias

from lakerunner.api.formats.series_text import warm as warm_rows
from lakerunner.kernel_cache import (
    DIRECTORY,
    KernelCache,
    announce_compiling,
    is_compiling,
    kernels_of,
)
from lakerunner.logql.columns.json_keys import warm as warm_json
from lakerunner.logql.columns.logfmt_keys import warm as warm_logfmt
from lakerunner.logql.columns.pattern_parts import warm as warm_patterns
from lakerunner.model.display import plural
from lakerunner.model.streams.line_levels import warm as warm_levels
from lakerunner.pipeline.jvm import spark_variables
from lakerunner.pipeline.push_check import warm as warm_checks
from lakerunner.pipeline.remote_write.reader import warm_remote_write
from lakerunner.pipeline.warm import warm_fold, warm_merges, warm_signal
from lakerunner.query.metrics.kernels import warm as warm_scans
from lakerunner.query.metrics.rollup_rows import warm as warm_windows
from lakerunner.query.metrics.ties import warm as warm_ties
from lakerunner.query.metrics.warm_kernels import warm as warm_functions
from lakerunner.query.sandbox.pool import Sandboxes
from lakerunner.series.part_sums import warm as warm_parts
from lakerunner.services.preflight import WORKER
from lakerunner.services.runtime import Runtime

_MODULE = "lakerunner.services.warm"
_LOWER_PRIORITY = 5  # not the lowest: a query may wait for a kernel that is being compiled
_LOOK_SECONDS = 0.2


# What is needed first comes first. Process n of two takes every second share: about 40 s of CPU time each.
Warm: TypeAlias = Callable[[], None]
Show: TypeAlias = Callable[[str], None]
_SHARES: dict[str, tuple[Warm, ...]] = {
    "logs": (partial(warm_signal, "logs"),),
    "metrics": (partial(warm_signal, "metrics"),),
    "traces": (partial(warm_signal, "traces"),),
    "functions": (warm_functions,),
    "remote-write": (warm_remote_write,),
    "samples": (warm_scans, warm_ties, warm_windows, warm_rows, warm_parts),
    "lines": (warm_json, warm_logfmt, warm_patterns, warm_levels),
    "push": (warm_checks,),
    "tending": (warm_fold, warm_merges, warm_parts),
}
_QUERY_SHARES = ("functions", "samples", "lines")
_SHARES_OF_PARTS: dict[str, tuple[str, ...]] = {
    "pubsub": ("push",),
    "ingest": ("logs", "metrics", "traces", "remote-write"),
    "compact": ("tending",),
    "rollup": ("tending",),
    "materialize": ("logs", "metrics", "lines"),
    "query-api": _QUERY_SHARES,
    WORKER: _QUERY_SHARES,
}


class KernelCompiler:
    """Processes that compile these shares. They end with this process, however it ends."""

    def __init__(self, shares: Sequence[str], *, errors: int | None = subprocess.DEVNULL) -> None:
        self._processes: list[subprocess.Popen[bytes]] = []
        count = min(os.cpu_count() or 1, len(shares))
        try:
            with announce_compiling() as file:
                for number in range(count):
                    self._processes.append(_start(shares[number::count], file, errors))
        except BaseException:  # Ctrl-C too
            self.end()
            raise

    @property
    def is_running(self) -> bool:
        return any(process.poll() is None for process in self._processes)

    def wait(self) -> bool:
        """Wait until all have ended; return whether everything is compiled."""
        codes = [process.wait() for process in self._processes]
        return not any(codes)

    def end(self) -> None:
        for process in self._processes:
            process.kill()
        for process in self._processes:
            process.wait()
            if process.stdin:
                process.stdin.close()


def _start(shares: Sequence[str], file: int, errors: int | None) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-m", _MODULE, *shares],
        stdin=subprocess.PIPE,  # its end tells the process that we have ended
        stdout=subprocess.DEVNULL,
        stderr=errors,
        env=spark_variables(os.environ),  # no secrets
        pass_fds=[file],
        process_group=0,  # Ctrl-C in the terminal is for us alone; a new session would undo the priority
    )


def compile_aside(runtime: Runtime, parts: Collection[str], show: Show, report: Show) -> None:
    """Start to compile the missing kernels of these parts, if any, and return at once. `show` gets a line that says so,
    and `report`, in another thread, one when it is done."""
    shares = _missing({share for part in parts for share in _SHARES_OF_PARTS.get(part, ())})
    if not shares:
        return
    missing = [kernel for kernel in _kernels(shares) if not kernel.is_compiled]
    try:
        compiler = KernelCompiler(shares)
    except OSError as error:
        runtime.log.warning("kernels are compiled when they are first needed", error=str(error))
        return
    runtime.on_stop(compiler.end)
    if missing:
        show(
            f"compiling up to {plural(len(missing), 'kernel')} for the first start: about a minute in the background, "
            "queries are answered meanwhile, more slowly"
        )
        runtime.log.milestone("compiling kernels for the first start", kernels=len(missing), shares=shares)
    following = (runtime, compiler, missing, report)
    threading.Thread(target=_follow, args=following, name="kernels", daemon=True).start()


def _follow(runtime: Runtime, compiler: KernelCompiler, missing: Sequence[KernelCache], report: Show) -> None:
    """Wait for the compiler, and report what it did. If the process stops, end the compiler at once: the main thread
    may be busy starting something."""
    began = time.monotonic()
    while compiler.is_running:
        if runtime.stopping.wait(_LOOK_SECONDS):
            compiler.end()
    complete = compiler.wait()
    seconds = time.monotonic() - began
    compiled = sum(kernel.is_compiled for kernel in missing)
    if complete and missing:
        report(f"compiled {plural(compiled, 'kernel')} in {seconds:.0f} s")
        runtime.log.milestone("kernels compiled", kernels=compiled, seconds=round(seconds, 1))
    elif not complete and not runtime.stopping.is_set():
        runtime.log.warning("kernels are compiled when they are first needed", error="a compiling process has failed")


def warm_queries_aside(sandboxes: Sandboxes, stopping: threading.Event) -> None:
    """Load or compile the kernels of queries and start a sandbox, in threads that no one waits for."""
    for share in _QUERY_SHARES:
        warm_aside(_SHARES[share], stopping)
    threading.Thread(target=sandboxes.warm, name="sandbox-warm", daemon=True).start()


def warm_aside(warms: Sequence[Warm], stopping: threading.Event) -> None:
    """Call these in a thread, after the processes that compile have ended: compiling in a thread would hold up the
    other threads of this process. When this process stops, those end unfinished, and nothing is left to do here."""

    def run() -> None:
        while is_compiling() and not stopping.wait(_LOOK_SECONDS):
            pass
        for warm in warms:
            if not stopping.is_set():
                warm()

    threading.Thread(target=run, name="kernels-warm", daemon=True).start()


def _missing(shares: Collection[str]) -> list[str]:
    """Return those of these shares that are not compiled, in the order in which they are needed."""
    return [share for share in _SHARES if share in shares and not _is_compiled(share)]


def _is_compiled(share: str) -> bool:
    try:
        return _marker(share).read_text() == _places(share)
    except OSError:
        return False


def _marker(share: str) -> Path:
    return DIRECTORY / f"{share}.compiled"


def _places(share: str) -> str:
    """Return where the machine code of this share is: a directory has code of the same sources only."""
    return "\n".join(sorted({Path(kernel.cache_path).name for kernel in _kernels([share])}))


def _kernels(shares: Collection[str]) -> list[KernelCache]:
    """Return the kernels that these shares may need."""
    warms = [warm for share in shares for warm in _SHARES[share]]
    return kernels_of(warm.func if isinstance(warm, partial) else warm for warm in warms)


def _compile(shares: Sequence[str]) -> None:
    """Compile these shares in this process, and end if the process that started it ends."""

    def end_with_parent() -> None:
        sys.stdin.buffer.read()
        os._exit(1)

    threading.Thread(target=end_with_parent, daemon=True).start()
    os.nice(_LOWER_PRIORITY)
    for share in shares:
        for warm in _SHARES[share]:
            warm()
        with suppress(OSError):
            _marker(share).write_text(_places(share))
    os._exit(0)  # not through the end of the interpreter, which would wait for threads of libraries


def main(arguments: Sequence[str]) -> int:
    if arguments:
        _compile(arguments)
    shares = _missing(_SHARES)
    if not shares:
        return 0
    signal.signal(signal.SIGTERM, lambda number, _frame: sys.exit(128 + number))
    print("compiling kernels, once: about a minute on two cores", flush=True)  # noqa: T201 - for `make`
    try:
        compiler = KernelCompiler(shares, errors=None)
        try:
            return 0 if compiler.wait() else 1
        finally:
            compiler.end()
    except KeyboardInterrupt:
        return 128 + signal.SIGINT


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
