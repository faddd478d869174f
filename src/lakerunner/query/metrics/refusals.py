"""Fragments that workers refused to make of windows, remembered for a while: whoever asks again goes to raw points at
once, instead of having windows read in vain each time (docs/formats/tiers.md).

What always holds: it saves work and decides nothing, since raw points give the same answer. Where some of them have
expired it is not to be asked. What it says is what was found, with the time at which it was.

Bounded: MOST refusals, the least recently used go first; each for SECONDS, then the windows are tried again.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from threading import Lock
from uuid import UUID

from lakerunner.model.tiling import Interval
from lakerunner.model.time import SECOND_NS, time_text

MOST = 1_000
SECONDS = 300


@dataclass(frozen=True)
class RefusalKey:
    """A fragment by its text, from windows of this tier at most."""

    organization: UUID
    fragment: str
    tier: int


@dataclass(frozen=True)
class _Refusal:
    reason: str
    reach: Interval  # in which it was found
    found_ns: int


class Refusals:
    """Safe to use from many threads. Times come from the questions."""

    def __init__(self, most: int = MOST) -> None:
        self._most = most
        self._lock = Lock()
        self._found: OrderedDict[RefusalKey, _Refusal] = OrderedDict()  # the least recently used first

    def add(self, wanted: RefusalKey, reach: Interval, reason: str, now_ns: int) -> None:
        with self._lock:
            self._found[wanted] = _Refusal(reason, reach, now_ns)
            self._found.move_to_end(wanted)
            while len(self._found) > self._most:
                self._found.popitem(last=False)

    def reason(self, wanted: RefusalKey, reach: Interval, now_ns: int) -> str:
        """Why it was refused a short time ago, at a time that overlaps this; "" if it was not."""
        with self._lock:
            known = self._found.get(wanted)
            if known is None:
                return ""
            if now_ns - known.found_ns >= SECONDS * SECOND_NS:
                del self._found[wanted]
                return ""
            if known.reach[0] >= reach[1] or known.reach[1] <= reach[0]:
                return ""
            self._found.move_to_end(wanted)
        return f"{known.reason}, as found at {time_text(known.found_ns // SECOND_NS * SECOND_NS)} UTC"
