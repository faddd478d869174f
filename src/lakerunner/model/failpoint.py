"""Failpoints: named moments of the work at which a test kills the process, as a power cut would.

Comes in: the setting `failpoint`, `NAME`, `NAME:COUNT` (at the COUNTth time) or `NAME@TEXT` (whenever what is worked
on contains TEXT). It is armed once per process; Spark's Python workers get it with their task. An unset failpoint
costs one look at a variable.

What always holds: dying is SIGKILL: nothing is closed, flushed or rolled back by us.
"""

from __future__ import annotations

import os
import signal
from dataclasses import dataclass, field
from threading import Lock

from lakerunner.model.errors import UserError

POINTS = {
    "before-relay": "the relay holds messages of the outbox",
    "after-relay": "they are on the bus, and still in the outbox",
    "before-box": "a box is closed, and not on the bus",
    "after-box": "it is on the bus, and its arrivals are not given up",
    "after-arrivals": "its arrivals are given up",
    "before-read": "a task is about to read an object",
    "before-put": "a task is about to write a segment",
    "after-put": "the segment is written, and nobody knows it",
    "before-commit": "all segments of a box are written, and not committed",
    "after-commit": "they are committed, and the box is not given up",
    "after-ingest": "the box is given up",
    "before-merge": "a task is about to read segments to merge",
    "after-merge": "the merged segment is written, and nobody knows it",
    "before-swap": "all segments of a merge are written, and not committed",
    "after-swap": "they are committed, and the box is not given up",
    "after-compact": "the box is given up",
    "before-parts": "a task is about to read a stored segment for rules",
    "after-parts": "the parts of the segment are written, and nobody knows them",
    "before-cover": "the parts of a stored segment are written, and not committed",
    "after-cover": "they are committed, and the rules cover the segment",
    "before-window": "a task is about to read segments to roll up",
    "after-window": "the windows are written, and nobody knows them",
    "before-roll": "all windows of a box are written, and not committed",
    "after-roll": "they are committed, and the box is not given up",
    "after-rollup": "the box is given up",
    "before-expire": "the sweeper has found segments past their retention",
    "after-expire": "they are marked, and their files are there",
    "before-sweep": "the sweeper is about to delete files",
    "after-sweep": "some files are deleted, and their rows are there",
    "after-forget": "the rows of deleted files are gone",
    "before-load": "a restore has copied all objects, and its index is empty",
    "after-load": "a restore is whole, in HOME/restoring",
    "after-move": "a restore has moved its store to HOME, and not its index",
}


@dataclass
class _Failpoint:
    text: str
    name: str
    count: int = 1
    holds: str = ""
    lock: Lock = field(default_factory=Lock)

    def reached(self, name: str, at: str) -> None:
        if name != self.name or self.holds not in at:
            return
        with self.lock:
            self.count -= 1
            if self.count <= 0:
                os.kill(os.getpid(), signal.SIGKILL)


_armed: _Failpoint | None = None


def arm(text: str) -> None:
    """Arm this process with the failpoint of the setting; "" arms nothing. The same text again goes on counting."""
    global _armed
    if text and (_armed is None or _armed.text != text):
        _armed = _parse(text)


def check_failpoint(text: str) -> None:
    """Raise UserError if the text is neither empty nor a failpoint. Nothing is armed."""
    if text:
        _parse(text)


def reach(name: str, at: str = "") -> None:
    """Die here if this failpoint is armed; `at` names what is being worked on."""
    if _armed is not None:
        _armed.reached(name, at)


def _parse(text: str) -> _Failpoint:
    rest, _, holds = text.partition("@")
    name, _, count = rest.partition(":")
    if name not in POINTS or (count and not count.isdecimal()) or count == "0":
        raise UserError(
            f"unknown failpoint {text!r}: write NAME, NAME:COUNT or NAME@TEXT, with NAME one of {', '.join(POINTS)}"
        )
    return _Failpoint(text, name, int(count or 1), holds)
