"""What was read for a PromQL question, fragment by fragment: of which tier, where, and why of no wider one. Shown by
`lakerunner promql --explain` (read_lines.py) and in Prometheus' `stats`.

What always holds: a fragment is there once, however many groups of time it was worked out in; its times are those of
all of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from lakerunner.model.tier import RAW, TIER_NAMES
from lakerunner.model.tiling import Tiles, joined
from lakerunner.model.time import MS_NS, time_text
from lakerunner.query.metrics.expiry import Gone, Unrolled


@dataclass(frozen=True)
class Read:
    """`tier` is the widest that serves the fragment, RAW: none. `reason` says why no wider one does, "" of the widest
    there is. `tiles` are (start, end] in ms. `gone`: what of it has expired; `unrolled`: before windows were made of
    it."""

    fragment: str
    tier: int
    reason: str
    tiles: Tiles = field(default_factory=dict)
    gone: Gone | None = None
    unrolled: Unrolled | None = None

    def to_json(self) -> dict[str, Any]:
        read = [
            {"tier": TIER_NAMES[frequency], "start": _text(start), "end": _text(end)}
            for frequency, times in self.tiles.items()
            for start, end in times
        ]
        told = {"fragment": self.fragment, "tier": TIER_NAMES[self.tier], "reason": self.reason, "read": read}
        told |= {"expired": self.gone.until} if self.gone else {}
        never = self.unrolled.times if self.unrolled else ()
        return told | ({"unrolled": [{"start": _text(a), "end": _text(b)} for a, b in never]} if never else {})


class Reads:
    def __init__(self) -> None:
        self._found: dict[str, Read] = {}

    def add(self, read: Read) -> None:
        known = self._found.get(read.fragment)
        self._found[read.fragment] = read if known is None else _merged(known, read)

    def all(self) -> tuple[Read, ...]:
        return tuple(self._found.values())


def _merged(known: Read, new: Read) -> Read:
    frequencies = sorted({*known.tiles, *new.tiles}, reverse=True)
    tiles = {one: tuple(joined((*known.tiles.get(one, ()), *new.tiles.get(one, ())))) for one in frequencies}
    last = new if new.tier == RAW or known.tier != RAW else known  # what fell back is what there is to tell
    gone = known.gone + new.gone if known.gone and new.gone else known.gone or new.gone
    never = known.unrolled + new.unrolled if known.unrolled and new.unrolled else known.unrolled or new.unrolled
    return replace(last, tiles=tiles, gone=gone, unrolled=never)


def to_json(reads: Sequence[Read]) -> list[dict[str, Any]]:
    return [read.to_json() for read in reads]


def _text(time_ms: int) -> str:
    return time_text(time_ms * MS_NS)
