"""Sandboxes, lent for one piece of work at a time and kept warm for the organization they worked for.

What always holds: a sandbox works for one organization from its first work to its end; when another organization comes
it gets a new one. A sandbox that spilled, ran out of memory, was slowed down or did not stop in time is not lent again.
All sandboxes of a pool together hold at most `total_bytes`: beyond it the largest is ended, and its query gets an error
that names the setting. A sandbox that has worked for long yields the cores to those that have not, and so do those of
an organization that had much done of late while others wait (load.py).
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
from typing import Any
from uuid import UUID

import orjson

from lakerunner.model.errors import LakerunnerError, TooLarge
from lakerunner.model.frames import BrokenStream
from lakerunner.query.failures import Limits, ended, reported, too_long
from lakerunner.query.sandbox.load import RecentLoad
from lakerunner.query.sandbox.process import Sandbox, Zygote
from lakerunner.query.sandbox.protocol import ERROR

_KEPT_WARM = 4
_SPARE = 1  # forked before it is needed, for the next organization
_USES = 1000  # of one sandbox, which bounds what DuckDB keeps of footers
_WATCH_SECONDS = 0.05
_SLOWED_AFTER = 0.25  # seconds of one piece of work: what takes longer must not hold up what does not
_SLOWED_TO = 15  # in units of nice, of which a sandbox has 5 at first
_SLACK_BYTES = 256 << 20  # for threads' stacks and results on their way; a quarter of the limit is added
_numbers = count()  # of this process: pools may share a directory
_zygote = Zygote()


class Sandboxes:
    """`threads` are those of one sandbox; 0: one per core. The spill directory is on the file system of the segment
    cache. `total_bytes` 0: half of the machine's memory. Safe to use from many threads."""

    def __init__(
        self, limits: Limits, *, threads: int, spill_directory: Path, spill_max: str = "10GB", total_bytes: int = 0
    ) -> None:
        self.limits = limits
        memory = limits.memory_bytes
        self._settings = {
            "memory": limits.memory,
            "milliseconds": max(1, round(limits.seconds * 1000)),
            "spill": spill_max,
            "threads": threads or os.cpu_count() or 1,
            "data_bytes": memory + memory // 4 + _SLACK_BYTES,
        }
        self._directory = spill_directory.resolve()
        self._total_bytes = total_bytes or os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2
        self._lock = threading.Lock()
        self._idle: list[Sandbox] = []  # the one that ended its work last is the last
        self._spare: list[Sandbox] = []
        self._busy: dict[Sandbox, float] = {}
        self._load = RecentLoad()
        self._watching = False
        self._closer = weakref.finalize(self, _close_all, self._idle, self._spare)
        _forget_dead(self._directory)

    def lend(self, held: ExitStack, organization: UUID) -> Sandbox:
        """A sandbox that has worked for nobody else; `held` gives it back."""
        sandbox = self._take(organization) or self._make()
        sandbox.organization = organization
        sandbox.uses += 1
        with self._lock:
            now = self._busy[sandbox] = time.monotonic()
            yields = self._load.is_heavy(organization, now)
            if not self._watching:
                self._watching = True
                threading.Thread(target=_watch, args=(weakref.ref(self),), name="sandbox-watch", daemon=True).start()
        held.callback(self._take_back, sandbox)
        if yields:
            _slow_down(sandbox)
        return sandbox

    def ask(self, organization: UUID, request: Mapping[str, Any]) -> Any:
        """The value that a sandbox of this organization answers a short question with."""
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
        """The error that a sandbox reported; one that ran out of memory is not used again."""
        error, sound = reported(payload, self.limits)
        sandbox.sound = sandbox.sound and sound
        return error

    def failed(self, sandbox: Sandbox, error: Exception) -> LakerunnerError:
        """What it means that a sandbox does not answer, or no longer."""
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

    def warm(self) -> None:
        """Have a sandbox ready before the first query."""
        self._prepare()

    def close(self) -> None:
        """End those that are idle; those that are lent end when they are given back."""
        self._closer()

    def _take(self, organization: UUID) -> Sandbox | None:
        """One of its own that is idle, or the spare one; those that died meanwhile are passed over."""
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
            since = self._busy.pop(sandbox, now)
            if sandbox.organization is not None:
                self._load.add(sandbox.organization, now - since, now)
            if sound and self._closer.alive:
                self._idle.append(sandbox)
            surplus = [] if sound and self._closer.alive else [sandbox]
            while len(self._idle) > _KEPT_WARM:
                surplus.append(self._idle.pop(0))
            wanting = self._closer.alive and len(self._spare) < _SPARE
        if surplus or wanting:  # the query that has ended does not wait for it
            threading.Thread(target=self._tidy, args=(surplus,), name="sandbox-tidy", daemon=True).start()

    def _tidy(self, surplus: list[Sandbox]) -> None:
        for one in surplus:
            one.close()
        self._prepare()

    def _prepare(self) -> None:
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
        """One look at those that work; False if none does, and the watch ends."""
        with self._lock:
            self._watching = bool(self._busy)
            busy = dict(self._busy)
        resident = {sandbox: sandbox.resident_bytes for sandbox in busy}
        if sum(resident.values()) > self._total_bytes:
            largest = max(resident, key=lambda sandbox: resident[sandbox])
            largest.held_too_much = True
            largest.kill()
        now = time.monotonic()
        for sandbox, since in busy.items():
            if sandbox.sound and now - since > _SLOWED_AFTER:
                _slow_down(sandbox)
        return bool(busy)


def _watch(pool: weakref.ref[Sandboxes]) -> None:
    """Look at a pool's sandboxes as long as there is work, without keeping the pool."""
    while (watched := pool()) is not None and watched._look():
        del watched
        time.sleep(_WATCH_SECONDS)


def _slow_down(sandbox: Sandbox) -> None:
    """Have all its threads yield to others. It is not used again: to hurry it would take a privilege."""
    sandbox.sound = False
    with suppress(OSError):
        for task in os.listdir(f"/proc/{sandbox.pid}/task"):
            os.setpriority(os.PRIO_PROCESS, int(task), _SLOWED_TO)


def _close_all(*lists: list[Sandbox]) -> None:
    for sandboxes in lists:
        while sandboxes:
            sandboxes.pop().close()


def _forget_dead(directory: Path) -> None:
    """Remove what sandboxes of processes that are no more left; a live one's is named by its own number."""
    directory.mkdir(parents=True, exist_ok=True)
    for path in directory.iterdir():
        pid = path.name.partition("-")[0]
        if path.is_dir() and pid.isdigit() and not Path(f"/proc/{pid}").exists():
            shutil.rmtree(path, ignore_errors=True)
