"""The limits of one LogQL query: what it may hold before it is refused."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from lakerunner.model.errors import TooLarge
from lakerunner.series.bounds import too_many_samples

INNER_FACTOR = 10


@dataclass(frozen=True)
class LogLimits:
    """`max_series`: of a range aggregation and of the answer. `max_samples`: lines of a metric query that pass their
    pipeline, or their sums where workers add them up, and values that are held at once. `cut_answer`: an answer with
    more series is cut, to one more than `max_series`, instead of refused; range aggregations, whose series cannot be
    cut without a wrong answer, may then have INNER_FACTOR times as many."""

    max_series: int = 200_000
    max_samples: int = 50_000_000
    cut_answer: bool = False

    def check_series(self, count: int) -> None:
        if count > self.max_series * (INNER_FACTOR if self.cut_answer else 1):
            raise TooLarge(
                f"maximum number of series ({self.max_series}) reached for a single query (metrics_max_series): "
                "use a more specific selector, a shorter range, or aggregate by fewer labels"
            )

    def check_samples(self, count: int) -> None:
        if count > self.max_samples:
            raise too_many_samples(self.max_samples)

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, given: Mapping[str, Any]) -> LogLimits:
        return cls(int(given["max_series"]), int(given["max_samples"]), bool(given["cut_answer"]))


DEFAULT_LIMITS = LogLimits()
