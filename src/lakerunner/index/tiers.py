"""Segments of several tiers for one query: what of the next tier is not there yet, and so which tier is read where.

Comes in: an open transaction and what is asked. Goes out: tiles, and the rows of the segments that have something for
them. What always holds: all of it is one snapshot. A rollup that is committed between two looks would otherwise show a
segment as rolled up without the windows that it went into, or the other way round.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from lakerunner.index.database import Rows, Transaction
from lakerunner.index.expiry import expired_before, expiry_of
from lakerunner.model.expiry import Expiry
from lakerunner.model.tier import RAW, TIERS, window_end
from lakerunner.model.tiling import Interval, Tiles, joined, tiled
from lakerunner.model.time import MAX_NS, MIN_NS, MS_NS


def picked_rows(
    transaction: Transaction, asked: Mapping[str, Any], reach: Interval, tier: int
) -> tuple[Tiles, Rows, int, Expiry]:
    """Tiles, rows of the segments, how many there are before any is left out by fingerprints, and what has expired
    where raw points are read, or before it was rolled up. `asked` is organization, signal and wanted fingerprints. Must
    be the transaction's first statements."""
    transaction.run("segments.one_snapshot")
    finer = [frequency for frequency in (0, *TIERS) if frequency < tier]
    times = {"frequencies": finer, "start_ns": _first_ns(reach[0]), "end_ns": _first_ns(reach[1])}
    found = transaction.rows("segments.unrolled", {**asked, **times})
    before_ns = expired_before(transaction, asked)
    expired = {one: (ns - 1) // MS_NS for one, ns in before_ns.items()}
    unrolled: dict[int, list[Interval]] = {}
    never: dict[int, list[Interval]] = {}
    for frequency, start_ns, end_ns, live in found:
        first, last = start_ns // MS_NS, (end_ns - 1) // MS_NS
        if live or _finer_is_there(frequency, window_end(first, tier) - tier, expired):
            unrolled.setdefault(frequency, []).append((first, last))
        else:
            never.setdefault(frequency, []).append((first - 1, last))
    tiles = tiled(reach, tier, unrolled, expired)
    where = [
        (frequency, _first_ns(start), _first_ns(end))
        for frequency, intervals in tiles.items()
        for start, end in intervals
    ]
    wanted = {
        "frequencies": [frequency for frequency, _, _ in where],
        "starts": [start for _, start, _ in where],
        "ends": [end for _, _, end in where],
    }
    rows = transaction.rows("segments.pick_tiles", {**asked, **wanted})
    ((considered,),) = transaction.rows("segments.count_tiles", {**asked, **wanted})
    raw = [(start, end) for frequency, start, end in where if frequency == RAW]
    expiry = expiry_of(transaction, asked, before_ns, raw)
    if never:
        expiry = replace(expiry, before_ns=before_ns, unrolled={one: tuple(joined(own)) for one, own in never.items()})
    return tiles, rows, considered, expiry


def _finer_is_there(frequency: int, start_ms: int, expired: Mapping[int, int]) -> bool:
    """Whether what rows of this frequency were made of is there still, from this time on: it can be read instead."""
    return any(expired.get(finer, start_ms) <= start_ms for finer in (RAW, *TIERS) if finer < frequency)


def _first_ns(time_ms: int) -> int:
    """The first ns behind this ms."""
    return min(max((time_ms + 1) * MS_NS, MIN_NS), MAX_NS)
