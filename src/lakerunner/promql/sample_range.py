"""Which series and samples of metrics are selected, which part of them, and the scan that reads them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from lakerunner.model.labels.matcher import Matcher
from lakerunner.model.labels.metric_view import metric_conditions
from lakerunner.model.time import MAX_NS, MIN_NS, MS_NS, TimeRange
from lakerunner.plan.plan import ALL, Shard
from lakerunner.plan.scan import Scan


@dataclass(frozen=True)
class Selection:
    """Samples with start < time <= end, in ms; `shard` is a worker's share of the series."""

    matchers: tuple[Matcher, ...]
    start: int
    end: int
    shard: Shard = ALL

    @property
    def time(self) -> TimeRange | None:
        """None: nothing can be there, as far from now as no timestamp can say."""
        start = (self.start + 1) * MS_NS if self.start * MS_NS > MIN_NS else MIN_NS
        end = min((self.end + 1) * MS_NS, MAX_NS)
        return TimeRange(start, end) if start < end else None

    @property
    def scan(self) -> Scan | None:
        """Return the scan of the segments that can hold such samples; None: nothing can be there."""
        if self.time is None:
            return None
        return Scan("metrics", "metrics", self.time, (), conditions=metric_conditions(self.matchers))

    def to_json(self) -> dict[str, Any]:
        return {
            "matchers": [[one.name, one.op, one.value] for one in self.matchers],
            "start": self.start,
            "end": self.end,
        }

    @classmethod
    def from_json(cls, given: Mapping[str, Any]) -> Selection:
        return cls(tuple(Matcher(*one) for one in given["matchers"]), given["start"], given["end"])
