"""The server's side of sandboxes: the zygote that forks them, and a handle for each.

Invariants: a sandbox's environment holds no secret, since the zygote is started with a few fixed variables; whatever a
sandbox does, the server reads frames of bounded size from it and can kill it at any time.
"""

from __future__ import annotations

import logging
import os
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cache
from itertools import count
from pathlib import Path
from typing import IO, Any
from uuid import UUID

import orjson

from lakerunner.model.errors import Unavailable
from lakerunner.model.frames import BrokenStream, receive_frame
from lakerunner.query.sandbox.confine import FILES, SPILL
from lakerunner.query.sandbox.protocol import CANCEL, END, ERROR, REQUEST, VALUE, socket_pair
from lakerunner.query.segment_cache.lease import LeasedFile, Vanished

_ANSWER_BYTES = 4096
_START_SECONDS = 60.0
_LAST_WORDS = 2000
_logger = logging.getLogger("lakerunner.query.sandbox")


@dataclass(frozen=True)
class ProcessEnd:
    """How a sandbox ended: its exit code, negative for a signal, and the most memory it held."""

    status: int
    resident_bytes: int


class Zygote:
    """The process that sandboxes are forked from: one per server process, started for the first sandbox and restarted
    if it dies. Safe to use from many threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._socket: socket.socket | None = None
        self._errors: IO[bytes] | None = None

    def fork(self, directory: Path, limits: Mapping[str, Any]) -> tuple[int, socket.socket, socket.socket]:
        """Fork a sandbox; return its process id, data socket and control socket."""
        data, theirs = socket_pair()
        control, other = socket.socketpair()
        with theirs, other:
            request = {"directory": str(directory), "limits": dict(limits)}
            try:
                pid = self._ask(request, [theirs.fileno(), other.fileno()])["pid"]
            except BaseException:
                data.close()
                control.close()
                raise
        return pid, data, control

    def reap(self, pid: int) -> ProcessEnd:
        """Wait for a sandbox that has ended or was killed. Until then its process id is not reused."""
        with suppress(Unavailable):
            return ProcessEnd(**self._ask({"reap": pid}))
        return ProcessEnd(-signal.SIGKILL, 0)  # the zygote is gone, and all sandboxes with it

    def close(self) -> None:
        with self._lock:
            self._forget()

    def _ask(self, request: Mapping[str, Any], descriptors: Sequence[int] = ()) -> dict[str, Any]:
        with self._lock:
            if self._socket is None and "reap" in request:
                raise Unavailable("the process that sandboxes are forked from has ended")
            for last in (False, True):
                connection = self._socket or self._start()
                try:
                    socket.send_fds(connection, [orjson.dumps(request)], descriptors)
                    answer = connection.recv(_ANSWER_BYTES)
                except OSError:
                    answer = b""
                if answer:
                    return dict(orjson.loads(answer))
                said = self._last_words()
                self._forget()
                if last or "reap" in request:
                    break
            raise Unavailable(f"the process that sandboxes are forked from has ended: {said}")

    def _start(self) -> socket.socket:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        ours.settimeout(_START_SECONDS)
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 _forget closes it
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "lakerunner.query.sandbox.zygote", str(theirs.fileno())],
                env=_environment(),
                pass_fds=(theirs.fileno(),),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=self._errors,
                cwd="/",
                umask=0o077,
            )
        self._socket = ours
        return ours

    def _last_words(self) -> str:
        if self._errors is None:
            return ""
        size = os.fstat(self._errors.fileno()).st_size
        data = os.pread(self._errors.fileno(), _LAST_WORDS, max(0, size - _LAST_WORDS))
        return data.decode(errors="replace").strip()

    def _forget(self) -> None:
        if self._socket is not None:
            self._socket.close()
        if self._process is not None:
            self._process.kill()
            self._process.wait()
        if self._errors is not None:
            self._errors.close()
        self._socket = self._process = self._errors = None


def _environment() -> dict[str, str]:
    """Return an environment without our variables, so that no fault of the engine can reveal one."""
    needed = {name: os.environ[name] for name in ("LD_LIBRARY_PATH",) if name in os.environ}  # by Python itself
    return needed | {
        "PYTHONPATH": os.pathsep.join(path for path in sys.path if path),
        "OPENBLAS_NUM_THREADS": "1",  # threads of the zygote would be missing in its sandboxes
        "ARROW_DEFAULT_MEMORY_POOL": "system",  # others reserve more than they use, which the limit counts
        "MALLOC_ARENA_MAX": "4",
    }


@cache
def _report_missing(protection: str) -> None:
    _logger.warning("sandboxes of queries run without %s, which this kernel lacks", protection)


class Sandbox:
    """A handle of one child process. One thread reads from it at a time; any thread may cancel or kill it."""

    def __init__(self, zygote: Zygote, directory: Path, limits: Mapping[str, Any]) -> None:
        self.directory = directory
        self.organization: UUID | None = None  # whose it is, from its first work on
        self.uses = 0
        self.sound = True  # False once it must not be used again
        self.held_too_much = False  # it was killed because all sandboxes together held more than they may
        self._zygote = zygote
        self._numbers = count(1)
        self._number = 0
        self._idle = True
        self._greeted = False
        self._lock = threading.Lock()
        self._end: ProcessEnd | None = None
        for name in (FILES, SPILL):
            (directory / name).mkdir(parents=True)
        self.pid, self._data, self._control = zygote.fork(directory, limits)
        # A pidfd refers to this very process; the id may be reused once the zygote has died.
        self._process = os.pidfd_open(self.pid)

    def request(self, request: Mapping[str, Any], streams: Sequence[socket.socket] = ()) -> None:
        """Send a request; its frames follow. BrokenStream if the sandbox has ended."""
        self._number = next(self._numbers)
        body = orjson.dumps({**request, "number": self._number})
        self._idle = False
        try:
            socket.send_fds(self._data, [REQUEST.pack(len(body))], [stream.fileno() for stream in streams])
            self._data.sendall(body)
        except OSError as error:
            raise BrokenStream(str(error)) from error

    def next(self, seconds: float) -> tuple[bytes, bytearray]:
        """Return the next frame. TimeoutError if it does not come in time, BrokenStream if the sandbox has ended."""
        self._data.settimeout(seconds)
        if not self._greeted:
            for protection in orjson.loads(receive_frame(self._data)[1])["missing"]:
                _report_missing(protection)
            self._greeted = True
        kind, payload = receive_frame(self._data)
        self._idle = kind in (END, ERROR, VALUE)
        return kind, payload

    def cancel(self) -> None:
        """Ask it to stop the current request, which then ends with a frame of kind ERROR."""
        with suppress(OSError):
            self._control.sendall(CANCEL.pack(self._number))

    def settle(self, seconds: float) -> bool:
        """Stop a request whose frames are no longer read; return whether the sandbox can take another."""
        if not self._idle:
            self.cancel()
            try:
                while not self._idle:
                    self.next(seconds)
            except (TimeoutError, BrokenStream):
                return False
        return self._end is None

    def kill(self) -> None:
        """Kill it, from any thread: its reader gets BrokenStream."""
        self.sound = False
        with self._lock:
            if self._end is None:
                with suppress(ProcessLookupError):
                    signal.pidfd_send_signal(self._process, signal.SIGKILL)

    def end(self) -> ProcessEnd:
        """Kill it if it still runs, and return how it ended."""
        self.kill()
        with self._lock:
            if self._end is None:
                select.select([self._process], [], [])  # so that the zygote, which all wait for, does not wait for it
                self._end = self._zygote.reap(self.pid)
        return self._end

    def link(self, files: Mapping[UUID, LeasedFile]) -> Mapping[UUID, LeasedFile]:
        """Link the files into the sandbox's own directory and return them by their new paths."""
        own = self.directory / FILES
        linked = {id_: replace(file, path=own / f"{id_}.parquet") for id_, file in files.items()}
        try:
            for id_, file in files.items():
                os.link(file.path, linked[id_].path)
        except FileNotFoundError as error:
            raise Vanished("a file of the segment cache, or the sandbox's directory, was removed") from error
        except OSError as error:
            raise Unavailable(
                f"a segment's file cannot be linked ({error.strerror}): the worker's cache and spill directories "
                "need one file system, with hard links"
            ) from error
        return linked

    def clean(self) -> bool:
        """Remove the files of the finished request; return False if the sandbox spilled or must not be used again."""
        try:
            for path in (self.directory / FILES).iterdir():
                path.unlink(missing_ok=True)
            return self.sound and not any((self.directory / SPILL).iterdir())
        except FileNotFoundError:  # someone removed its directory, which it alone could use
            return False

    def close(self) -> None:
        """Kill it and remove its directory. Closing twice is fine."""
        if self._process < 0:
            return
        self.end()
        self._data.close()
        self._control.close()
        os.close(self._process)
        self._process = -1
        shutil.rmtree(self.directory, ignore_errors=True)

    @property
    def alive(self) -> bool:
        """Return whether it runs and still has its directory; a new directory in its place would be closed to it."""
        if not all((self.directory / name).is_dir() for name in (FILES, SPILL)):
            return False
        return self._end is None and not select.select([self._process], [], [], 0)[0]

    @property
    def cpu_seconds(self) -> float:
        """Return the CPU time that all its threads have used; 0 once it has ended."""
        try:
            fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            return 0.0
        return sum(map(int, fields[11:13])) / os.sysconf("SC_CLK_TCK")  # utime and stime, in ticks

    @property
    def resident_bytes(self) -> int:
        """Return the memory it holds, without shared pages; 0 once it has ended."""
        try:
            _, resident, shared, *_ = map(int, Path(f"/proc/{self.pid}/statm").read_text().split())
        except (OSError, ValueError):
            return 0
        return (resident - shared) * os.sysconf("SC_PAGE_SIZE")
