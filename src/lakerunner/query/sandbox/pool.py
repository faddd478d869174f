"""A pool of sandboxes, lent for one request at a time and kept warm for the organization that they worked for.

Invariants: a sandbox works for one organization from its first request to its end; another organization gets a new one.
A sandbox that spilled, ran out of memory, was slowed down or did not stop in time is not lent again. All sandboxes of a
pool together hold at most `total_bytes`: beyond it the largest is killed, and its query gets an error that names the
setting. A sandbox whose request uses much CPU time yields the cores to others, and so do those of an organization that
used much of late while others wait. CPU time counts, not the clock: on a busy machine short requests take long, and
would lose their warm sandboxes.
"""

from __future__ import annotations

import os
import shutil
import threading
import time
import weakref
from collections.abc import Mapping
from contextlib import ExitStack, suppress
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple
from uuid import UUID

import orjson

from lakerunner.model.errors import LakerunnerError, TooLarge
from lakerunner.model.frames import BrokenStream
from lakerunner.query.contract.failures import Limits, ended, reported, too_long
from lakerunner.query.sandbox.process import Sandbox, Zygote
from lakerunner.query.sandbox.protocol import ERROR

_KEPT_WARM = 4
_SPARE = 1  # forked before it is needed, for the next organization
_USES = 1000  # per sandbox, which bounds the footers that DuckDB caches
_WATCH_SECONDS = 0.05
_SLOWED_AFTER = 0.25  # CPU seconds of one request and thread; longer ones must not delay short ones
_SLOWED_TO = 15  # niceness; a sandbox starts with 5
_SLACK_BYTES = 256 << 20  # for stacks of threads and results in flight, beside a quarter of the memory limit
_numbers = count()  # shared by all pools of the process, which may share a directory
_zygote = Zygote()
HALF_LIFE = 5.0
HEAVY_SECONDS = 1.0
_FORGOTTEN = 0.001


class RecentLoad:
    """How much work sandboxes did of late for each organization, for one thread at a time; times are seconds of one
    clock.

    An organization that is alone never yields; among several, one with more than HEAVY_SECONDS does. The value halves
    every HALF_LIFE seconds and is forgotten when it is negligible."""

    def __init__(self) -> None:
        self._load: dict[UUID, tuple[float, float]] = {}  # seconds of work, and the time of that value

    def add(self, organization: UUID, seconds: float, now: float) -> None:
        self._load[organization] = self._decayed(organization, now) + seconds, now
        for one in [one for one in self._load if self._decayed(one, now) < _FORGOTTEN]:
            del self._load[one]

    def is_heavy(self, organization: UUID, now: float) -> bool:
        """Return whether it did much while others did something too."""
        others = any(one != organization for one in self._load)
        return others and self._decayed(organization, now) > HEAVY_SECONDS

    def _decayed(self, organization: UUID, now: float) -> float:
        seconds, then = self._load.get(organization, (0.0, now))
        return float(seconds * 0.5 ** ((now - then) / HALF_LIFE))


class _Start(NamedTuple):
    """When a sandbox was lent, and the CPU time that it had used by then."""

    time: float
    cpu_seconds: float


class Sandboxes:
    """Safe to use from many threads. `threads` is per sandbox; 0: one per core. The spill directory must be on the file
    system of the segment cache. `total_bytes` 0: half of the machine's memory."""

    def __init__(
        self, limits: Limits, *, threads: int, spill_directory: Path, spill_max: str = "10GB", total_bytes: int = 0
    ) -> None:
        self.limits = limits
        memory = limits.memory_bytes
        threads = threads or os.cpu_count() or 1
        self._settings = {
            "memory": limits.memory,
            "milliseconds": max(1, round(limits.seconds * 1000)),
            "spill": spill_max,
            "threads": threads,
            "data_bytes": memory + memory // 4 + _SLACK_BYTES,
        }
        self._slowed_after = _SLOWED_AFTER * threads
        self._directory = spill_directory.resolve()
        self._total_bytes = total_bytes or os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2
        self._lock = threading.Lock()
        self._idle: list[Sandbox] = []  # the most recently used last
        self._spare: list[Sandbox] = []
        self._busy: dict[Sandbox, _Start] = {}
        self._load = RecentLoad()
        self._watching = False
        self._tidying: set[threading.Thread] = set()
        self._closer = weakref.finalize(self, _close_all, self._idle, self._spare)
        _forget_dead(self._directory)

    def lend(self, held: ExitStack, organization: UUID) -> Sandbox:
        """Lend a sandbox that has worked for no other organization; closing `held` gives it back."""
        sandbox = self._take(organization) or self._make()
        sandbox.organization = organization
        sandbox.uses += 1
        with self._lock:
            now = time.monotonic()
            self._busy[sandbox] = _Start(now, sandbox.cpu_seconds)
            yields = self._load.is_heavy(organization, now)
            if not self._watching:
                self._watching = True
                threading.Thread(target=_watch, args=(weakref.ref(self),), name="sandbox-watch", daemon=True).start()
        held.callback(self._take_back, sandbox)
        if yields:
            _slow_down(sandbox)
        return sandbox

    def ask(self, organization: UUID, request: Mapping[str, Any]) -> Any:
        """Send a short request to a sandbox of this organization and return the value it answers with."""
        with ExitStack() as held:
            sandbox = self.lend(held, organization)
            try:
                sandbox.request(request)
                kind, payload = sandbox.next(self.limits.seconds + 1)
            except (BrokenStream, TimeoutError) as error:
                raise self.failed(sandbox, error) from None
            if kind == ERROR:
                raise self.reported(sandbox, payload)
            return orjson.loads(payload)

    def reported(self, sandbox: Sandbox, payload: bytes | bytearray) -> LakerunnerError:
        """Return the error that a sandbox reported; one that ran out of memory is not used again."""
        error, sound = reported(payload, self.limits)
        sandbox.sound = sandbox.sound and sound
        return error

    def failed(self, sandbox: Sandbox, error: Exception) -> LakerunnerError:
        """Return the error of a sandbox that did not answer or has ended."""
        if isinstance(error, TimeoutError):
            sandbox.kill()
            return too_long(self.limits.seconds)
        end = sandbox.end()
        if sandbox.held_too_much:
            return TooLarge(
                "all queries together used more than sandbox_memory, and this one the most: narrow "
                "its time range or select less"
            )
        return ended(end.status, end.resident_bytes, self.limits)

    def close(self) -> None:
        """End idle sandboxes, and those that are being prepared; lent ones end when they are given back."""
        self._closer()
        with self._lock:
            tidying = tuple(self._tidying)
        for thread in tidying:
            thread.join()

    def _take(self, organization: UUID) -> Sandbox | None:
        """Return an idle sandbox of the organization, or the spare one; those that have died are dropped."""
        while True:
            with self._lock:
                own = [sandbox for sandbox in self._idle if sandbox.organization == organization]
                if own:
                    sandbox = own[-1]
                    self._idle.remove(sandbox)
                elif self._spare:
                    sandbox = self._spare.pop()
                else:
                    return None
            if sandbox.alive:
                return sandbox
            sandbox.close()

    def _make(self) -> Sandbox:
        return Sandbox(_zygote, self._directory / f"{os.getpid()}-{next(_numbers)}", self._settings)

    def _take_back(self, sandbox: Sandbox) -> None:
        sound = sandbox.clean() and sandbox.uses < _USES
        with self._lock:
            now = time.monotonic()
            start = self._busy.pop(sandbox, None)
            if start and sandbox.organization is not None:
                self._load.add(sandbox.organization, now - start.time, now)
            if sound and self._closer.alive:
                self._idle.append(sandbox)
            surplus = [] if sound and self._closer.alive else [sandbox]
            while len(self._idle) > _KEPT_WARM:
                surplus.append(self._idle.pop(0))
            wanting = self._closer.alive and len(self._spare) < _SPARE
        if surplus or wanting:  # in a thread, so that the query that has ended does not wait for it
            thread = threading.Thread(target=self._tidy, args=(surplus,), name="sandbox-tidy", daemon=True)
            with self._lock:  # close() may join only what has started, and its end removes what was added
                thread.start()
                self._tidying.add(thread)

    def _tidy(self, surplus: list[Sandbox]) -> None:
        try:
            for one in surplus:
                one.close()
            self.warm()
        finally:
            with self._lock:
                self._tidying.discard(threading.current_thread())

    def warm(self) -> None:
        """Prepare a sandbox for the next organization, unless there is one."""
        with self._lock:
            if not self._closer.alive or len(self._spare) >= _SPARE:
                return
        spare = self._make()
        with self._lock:
            if self._closer.alive and len(self._spare) < _SPARE:
                self._spare.append(spare)
                return
        spare.close()

    def _look(self) -> bool:
        """Check the busy sandboxes once; return False if there are none, which ends the watch."""
        with self._lock:
            self._watching = bool(self._busy)
            busy = dict(self._busy)
        resident = {sandbox: sandbox.resident_bytes for sandbox in busy}
        if sum(resident.values()) > self._total_bytes:
            largest = max(resident, key=lambda sandbox: resident[sandbox])
            largest.held_too_much = True
            largest.kill()
        for sandbox, start in busy.items():
            if sandbox.sound and sandbox.cpu_seconds - start.cpu_seconds > self._slowed_after:
                _slow_down(sandbox)
        return bool(busy)


def _watch(pool: weakref.ref[Sandboxes]) -> None:
    """Check a pool's sandboxes while there is work, without keeping the pool alive."""
    while (watched := pool()) is not None and watched._look():
        del watched
        time.sleep(_WATCH_SECONDS)


def _slow_down(sandbox: Sandbox) -> None:
    """Lower the priority of all its threads. The sandbox is not used again, since raising the priority needs a
    privilege."""
    sandbox.sound = False
    with suppress(OSError):
        for task in os.listdir(f"/proc/{sandbox.pid}/task"):
            os.setpriority(os.PRIO_PROCESS, int(task), _SLOWED_TO)


def _close_all(*lists: list[Sandbox]) -> None:
    for sandboxes in lists:
        while sandboxes:
            sandboxes.pop().close()


def _forget_dead(directory: Path) -> None:
    """Remove directories of sandboxes whose process has ended; names begin with the server's process id."""
    directory.mkdir(parents=True, exist_ok=True)
    for path in directory.iterdir():
        pid = path.name.partition("-")[0]
        if path.is_dir() and pid.isdigit() and not Path(f"/proc/{pid}").exists():
            shutil.rmtree(path, ignore_errors=True)
