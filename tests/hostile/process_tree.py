"""The processes of a lake: which ones live, and how much memory they hold together.

Shared pages count once: the sum is of PSS (`/proc/PID/smaps_rollup`), not of RSS.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from resource import getpagesize
from threading import Event, Thread

import psutil

MIB = 1 << 20
PAGE_SIZE = getpagesize()
SAMPLE_SECONDS = 0.25


class Tree:
    """The server's process, its descendants, and the embedded PostgreSQL, which has left the family."""

    def __init__(self, pid: int, home: Path) -> None:
        self._root = psutil.Process(pid)
        self._home = home

    def processes(self) -> list[psutil.Process]:
        found = [self._root, *self._postgres()]
        for parent in tuple(found):
            try:
                found += parent.children(recursive=True)
            except psutil.NoSuchProcess:
                continue
        return found

    def lasting(self) -> dict[int, str]:
        """Return what no query may end: the server itself, PostgreSQL's first process, and the JVMs now there."""
        first = {self._root.pid: "server"}
        first |= {process.pid: "postgres" for process in self._postgres()}
        return first | {process.pid: "java" for process in self.processes() if _name(process) == "java"}

    def pss(self) -> int:
        """Return the bytes that all of them hold."""
        return sum(_pss(process.pid) for process in self.processes())

    def pss_above(self, bound: int) -> int:
        """Return the bytes that all of them hold if these are more than `bound`, else 0.

        The kernel takes a tenth of a second of a core to sum the PSS of a lake, and next to nothing for RSS, which is
        never less: PSS is read only where RSS is above the bound.
        """
        return self.pss() if sum(_rss(process.pid) for process in self.processes()) > bound else 0

    def _postgres(self) -> list[psutil.Process]:
        try:
            pid = int((self._home / "postgres" / "data" / "postmaster.pid").read_text().split()[0])
            return [psutil.Process(pid)]
        except (OSError, ValueError, IndexError, psutil.NoSuchProcess):
            return []


class Watch:
    """Samples the memory of a tree; `highest` is the most that it held at one sample, of those above `bound`."""

    def __init__(self, tree: Tree, bound: int) -> None:
        self._tree, self._bound, self._ended = tree, bound, Event()
        self.highest = tree.pss()
        self._thread = Thread(target=self._run, name="memory watch", daemon=True)

    def _run(self) -> None:
        while not self._ended.wait(SAMPLE_SECONDS):
            self.highest = max(self.highest, self._tree.pss_above(self._bound))

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._ended.set()
        self._thread.join(10)


@contextmanager
def watched(tree: Tree, bound: int = 0) -> Iterator[Watch]:
    watch = Watch(tree, bound)
    watch.start()
    try:
        yield watch
    finally:
        watch.stop()


def alive(pids: dict[int, str]) -> dict[int, str]:
    """Return those of the processes that still run."""
    found = {}
    for pid, what in pids.items():
        try:
            if psutil.Process(pid).status() != psutil.STATUS_ZOMBIE:
                found[pid] = what
        except psutil.NoSuchProcess:
            continue
    return found


def _name(process: psutil.Process) -> str:
    try:
        return process.name()
    except psutil.NoSuchProcess:
        return ""


def _rss(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * PAGE_SIZE
    except OSError:
        return 0


def _pss(pid: int) -> int:
    """A process that has just ended, or that belongs to someone else, counts nothing."""
    try:
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                return int(line.split()[1]) * 1024
    except OSError:
        return 0
    return 0
