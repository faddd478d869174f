"""What was read for a PromQL question, as lines for people: `lakerunner promql --explain`.

Comes in: reads (reads.py) as JSON. Imports no engine: the command line needs it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from lakerunner.model.tier import RAW, TIER_NAMES, tier_text


def lines(reads: Iterable[dict[str, Any]]) -> list[str]:
    """Of reads as JSON."""
    found = []
    for read in reads:
        found.append(read["fragment"])
        found.append(f"  {_widest(read['tier'])}" + (f": {read['reason']}." if read["reason"] else "."))
        found += [f"  read {_named(one['tier'])} after {one['start']} to {one['end']}" for one in read["read"]]
        found += [f"  expired up to {read['expired']}"] if "expired" in read else []
        never = read.get("unrolled", ())
        found += [f"  expired without being rolled up after {one['start']} to {one['end']}" for one in never]
    return found or ["nothing is read"]


def _widest(tier: str) -> str:
    raw = tier == TIER_NAMES[RAW]
    return "Read raw samples" if raw else f"Read {_named(tier)} or finer"


def _named(tier: str) -> str:
    """A tier by its name in JSON, as messages have it."""
    return next((tier_text(frequency) for frequency, name in TIER_NAMES.items() if name == tier), tier)
