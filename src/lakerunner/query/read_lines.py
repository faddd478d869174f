"""The lines of `lakerunner promql --explain`: what was read for a PromQL query.

Input: reads (reads.py) as JSON. It imports no engine, so that the command line starts fast.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from lakerunner.model.tier import RAW, TIER_NAMES, tier_text


def read_lines(reads: Iterable[dict[str, Any]]) -> list[str]:
    """Return the lines for reads in their JSON form."""
    found = []
    for read in reads:
        found.append(read["fragment"])
        found.append(f"  {_widest(read['tier'])}" + (f": {read['reason']}." if read["reason"] else "."))
        found += [f"  read {_tier_text(one['tier'])} after {one['start']} to {one['end']}" for one in read["read"]]
        found += [f"  expired up to {read['expired']}"] if "expired" in read else []
        never = read.get("unrolled", ())
        found += [f"  expired without being rolled up after {one['start']} to {one['end']}" for one in never]
    return found or ["nothing is read"]


def _widest(tier: str) -> str:
    raw = tier == TIER_NAMES[RAW]
    return "Read raw samples" if raw else f"Read {_tier_text(tier)} or finer"


def _tier_text(tier: str) -> str:
    """Return the text of a tier from its name in JSON."""
    return next((tier_text(frequency) for frequency, name in TIER_NAMES.items() if name == tier), tier)
