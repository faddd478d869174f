"""Kernels are compiled beside the service that needs them: it says so, and compiling ends with the service."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest

from lakerunner.kernel_cache import DIRECTORY
from servers.lake import LAKERUNNER, START_SECONDS, STOP_SECONDS, clean_environment, wait_until

COMPILE = [sys.executable, "-m", "lakerunner.services.warm"]
BEGIN = re.compile(
    r"compiling up to \d+ kernels for the first start: about a minute in the background, "
    r"queries are answered meanwhile, more slowly\n"
)
# Reads every index and data file of the cache as numba does, and prints how many kernels have one.
READ = """
import lakerunner.services.warm
from lakerunner.kernel_cache import _kernels
kept = [kernel._cache_file for kernel in _kernels if kernel.is_compiled]
found = [file.load(key) is not None for file in kept for key in file._load_index()]
print(len(kept), len(found) - sum(found))
"""


def worker_in(home: Path) -> list[str]:
    return [*LAKERUNNER, "query-worker", "--listen", "127.0.0.1:0", "--home", str(home)]


@contextmanager
def running(command: list[str], cache: Path) -> Iterator[subprocess.Popen[str]]:
    environment = clean_environment({"NUMBA_CACHE_DIR": str(cache)})
    with subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def line_of(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline()


def compilers_at_work(process: subprocess.Popen[str], cache: Path) -> list[psutil.Process]:
    """Return the processes that compile, when they have saved some kernels and not yet all."""
    wait_until(lambda: any(cache.rglob("*.nbc")), "a kernel is compiled", START_SECONDS)
    compilers = [
        child for child in psutil.Process(process.pid).children() if "lakerunner.services.warm" in _words(child)
    ]
    assert compilers
    assert not any(cache.rglob("*.compiled"))
    return compilers


def _words(process: psutil.Process) -> list[str]:
    try:
        words: list[str] = process.cmdline()
    except psutil.Error:  # it has just ended
        return []
    return words


def test_a_signal_ends_a_service_that_compiles_and_leaves_a_cache_that_can_be_read(tmp_path: Path) -> None:
    with running(worker_in(tmp_path / "home"), tmp_path) as process:
        assert BEGIN.fullmatch(line_of(process))
        compilers = compilers_at_work(process, tmp_path)
        process.send_signal(signal.SIGTERM)  # SIGINT: the heavy test of a whole lake
        output, errors = process.communicate(timeout=STOP_SECONDS)
        assert (process.returncode, output.splitlines()[-1]) == (0, "stopped"), errors
        assert not re.search("^compiled", output, re.M)
        assert not any(compiler.is_running() for compiler in compilers)
    with running([sys.executable, "-c", READ], tmp_path) as reader:
        output, errors = reader.communicate(timeout=START_SECONDS)
    assert reader.returncode == 0, errors
    kept, without_code = map(int, output.split())
    # Of a kernel that was being saved the index may be there without the code: it is compiled again.
    assert kept > 0
    assert without_code <= len(compilers)


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_ends_compiling_ahead_of_the_start(number: signal.Signals, code: int, tmp_path: Path) -> None:
    with running(COMPILE, tmp_path) as process:
        assert line_of(process).startswith("compiling kernels, once")
        compilers = compilers_at_work(process, tmp_path)
        process.send_signal(number)
        assert process.communicate(timeout=STOP_SECONDS) == ("", "")
        assert process.returncode == code
        assert not any(compiler.is_running() for compiler in compilers)


def test_compiling_ends_when_the_process_is_killed(tmp_path: Path) -> None:
    with running(worker_in(tmp_path / "home"), tmp_path) as process:
        assert BEGIN.fullmatch(line_of(process))
        compilers = compilers_at_work(process, tmp_path)
        process.kill()
    wait_until(lambda: not any(map(_is_alive, compilers)), "they have ended", STOP_SECONDS)


def _is_alive(process: psutil.Process) -> bool:
    """Return whether it runs. Nobody may be there to collect the exit code of a process whose parent was killed."""
    try:
        return bool(process.status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


@pytest.mark.heavy
@pytest.mark.parametrize("number", [signal.SIGINT, pytest.param(signal.SIGTERM, marks=pytest.mark.slow)])
def test_a_signal_ends_everything_of_a_lake_whose_first_start_compiles(number: signal.Signals, tmp_path: Path) -> None:
    """Spark's Python daemon compiles as well: it is in the process group of its Java process."""
    home = tmp_path / "home"
    command = [*LAKERUNNER, "up", "--listen", "127.0.0.1:0", "--home", str(home)]
    with running(command, tmp_path) as process:
        assert BEGIN.fullmatch(line_of(process))
        started = psutil.Process(process.pid)
        wait_until(
            lambda: any("lakerunner.pipeline.daemon" in _words(one) for one in started.children(recursive=True)),
            "Spark starts its Python daemon",
            START_SECONDS,
        )
        everything = started.children(recursive=True)
        process.send_signal(number)
        output, errors = process.communicate(timeout=STOP_SECONDS)
        assert (process.returncode, output) == (0, "stopped\n"), errors
    assert psutil.wait_procs(everything, timeout=STOP_SECONDS)[1] == []
    assert [one for one in psutil.process_iter() if any(str(home) in word for word in _words(one))] == []


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A cache with all kernels that are compiled ahead."""
    subprocess.run(COMPILE, check=True, timeout=590)
    return Path(shutil.copytree(DIRECTORY, tmp_path_factory.mktemp("compiled") / DIRECTORY.name)).parent


def test_without_a_terminal_a_first_start_prints_when_compiling_begins_and_ends(compiled: Path, tmp_path: Path) -> None:
    for marker in compiled.rglob("*.compiled"):
        marker.unlink()
    kernels = list(compiled.rglob("ties.merge_exactly-*"))
    assert kernels
    for file in kernels:
        os.unlink(file)
    with running(worker_in(tmp_path / "home"), compiled) as process:
        lines = [line_of(process) for _ in range(4)]
        process.send_signal(signal.SIGTERM)
        rest, errors = process.communicate(timeout=STOP_SECONDS)
    assert (process.returncode, rest) == (0, "stopped\n"), errors
    assert BEGIN.fullmatch(lines[0])
    ends = [line for line in lines if re.fullmatch(r"compiled 1 kernel in \d+ s\n", line)]
    assert len(ends) == 1  # before or after the lines that say that it is ready
    assert len(list(compiled.rglob("ties.merge_exactly-*"))) == len(kernels)

    with running(worker_in(tmp_path / "home"), compiled) as process:  # the second start has nothing to compile
        first = line_of(process)
        process.send_signal(signal.SIGTERM)
        rest, errors = process.communicate(timeout=STOP_SECONDS)
    assert (process.returncode, rest.splitlines()[-1]) == (0, "stopped"), errors
    assert first.startswith("lakerunner query-worker is ready at ")
    assert "compil" not in rest + errors
