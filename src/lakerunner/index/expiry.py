"""What has expired of the time that a query reads, and which tiers stand in its place.

What always holds: up to when rows have expired is known as of the very moment at which segments were picked, or later.
What expires in between is then warned of and read nevertheless, never the other way round.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from lakerunner.index.database import Transaction
from lakerunner.model.expiry import NOTHING_EXPIRED, Expiry
from lakerunner.model.tier import RAW


def expired_before(transaction: Transaction, asked: Mapping[str, Any]) -> dict[int, int]:
    """By frequency. `asked` has organization and signal."""
    return dict(transaction.rows("segments.expired", asked))


def expiry_of(
    transaction: Transaction, asked: Mapping[str, Any], before_ns: Mapping[int, int], raw: Iterable[tuple[int, int]]
) -> Expiry:
    """`raw` are the times, [start, end) in ns, at which raw rows are read; `asked` has the wanted fingerprints too."""
    if RAW not in before_ns:
        return NOTHING_EXPIRED
    gone = [(start, min(end, before_ns[RAW])) for start, end in raw if start < before_ns[RAW]]
    if not gone:
        return NOTHING_EXPIRED
    times = {"starts": [start for start, _ in gone], "ends": [end for _, end in gone]}
    return Expiry(before_ns, tuple(tier for (tier,) in transaction.rows("segments.left", {**asked, **times})))
