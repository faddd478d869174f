"""Up to when rows have expired by their retention, as the index knows it: what a query that reaches before that cannot
find, and what stands in its place.

What always holds: it is known only of what the sweeper has let go. A lake that is younger than a query has no expiry.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from lakerunner.model.tier import RAW
from lakerunner.model.tiling import Interval
from lakerunner.model.time import MS_NS, SECOND_NS, time_text


@dataclass(frozen=True)
class Expiry:
    """Of one organization's signal. `before_ns`: by frequency, rows before this may be gone. `left`: the tiers that
    have windows where raw rows were to be read and are gone. `unrolled`: by frequency, the times of rows that are gone
    and that no window of a coarser tier was made of, (start, end] in ms and in order."""

    before_ns: Mapping[int, int] = field(default_factory=dict)
    left: tuple[int, ...] = ()
    unrolled: Mapping[int, tuple[Interval, ...]] = field(default_factory=dict)

    def last_ms(self, frequency_ms: int = RAW) -> int | None:
        """The last ms of a row that may be gone; None: none is."""
        before_ns = self.before_ns.get(frequency_ms)
        return None if before_ns is None else (before_ns - 1) // MS_NS


NOTHING_EXPIRED = Expiry()


def expiry_text(before_ns: int) -> str:
    """Up to when, for people: the whole second that the last row which may be gone is not behind."""
    return f"{time_text(-(-(before_ns - 1) // SECOND_NS) * SECOND_NS)} UTC"
