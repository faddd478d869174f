"""What is asked of a worker's segments of metrics: which series, which samples, which part of them."""

from __future__ import annotations

from dataclasses import dataclass

from lakerunner.model.labels.matcher import Matcher
from lakerunner.model.time import MAX_NS, MIN_NS, MS_NS, TimeRange


@dataclass(frozen=True)
class Shard:
    """Part `number` (from 0) of `of` parts of the series."""

    number: int = 0
    of: int = 1

    def __post_init__(self) -> None:
        if not 0 <= self.number < self.of:
            raise ValueError(f"shard {self.number} of {self.of}")


@dataclass(frozen=True)
class Selection:
    """Samples with start < time <= end, in ms."""

    matchers: tuple[Matcher, ...]
    start: int
    end: int
    shard: Shard = Shard()

    @property
    def time(self) -> TimeRange | None:
        """None: nothing can be there, as far from now as no timestamp can say."""
        start = (self.start + 1) * MS_NS if self.start * MS_NS > MIN_NS else MIN_NS
        end = min((self.end + 1) * MS_NS, MAX_NS)
        return TimeRange(start, end) if start < end else None
