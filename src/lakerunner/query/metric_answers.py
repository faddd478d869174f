"""Queries about metrics and their answers, and the contract of what answers them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol
from uuid import UUID

from lakerunner.model.errors import UserError
from lakerunner.model.labels.matcher import Matcher
from lakerunner.model.tier import TIERS, Interval, window_end
from lakerunner.model.time import MS_NS
from lakerunner.plan.explain import Explain
from lakerunner.promql.plan import PromqlQuestion
from lakerunner.query.answer import Answer
from lakerunner.query.contract.account import Account
from lakerunner.query.series_answer import SeriesAnswer
from lakerunner.series.notes import Note
from lakerunner.series.values import Samples

Selectors = Sequence[tuple[Matcher, ...]]


@dataclass(frozen=True)
class Listing:
    """Sorted rows, each once. `truncated`: there are more than the limit. Rows are Labels (series), str (label names
    and values), (metric, type, help, unit), or (Labels, exemplars), where an exemplar is a dict of `labels` (Labels),
    `value` (float) and `timestamp` (ms)."""

    rows: list[Any]
    truncated: bool
    account: Account


@dataclass(frozen=True)
class StoredSamples:
    """Samples as they are stored, with stale markers; series are sorted by labels, each once. `notes` say what has
    expired."""

    samples: Samples
    notes: tuple[Note, ...]
    account: Account


@dataclass(frozen=True)
class CardinalityQuestion:
    """How many series there were, in windows of `step_ms` that end at its multiples: those that contain a time with
    start_ms < time <= end_ms. `metric`: its name as sent or as Prometheus names it; "": all metrics, the `limit` with
    the most series. `labels`: also count the values of each of the metric's labels."""

    metric: str
    start_ms: int
    end_ms: int
    step_ms: int
    now_ns: int
    labels: bool = False
    limit: int = 100

    def __post_init__(self) -> None:
        if self.step_ms <= 0 or self.step_ms % TIERS[0]:
            raise UserError(
                f"step is {self.step_ms} ms, but series are counted in windows of 10s: use a multiple of 10s"
            )
        if self.labels and not self.metric:
            raise UserError("labels need a metric: name one")

    @property
    def now_ms(self) -> int:
        """Return the current time; a window that ends later is not over."""
        return self.now_ns // MS_NS

    @property
    def reach(self) -> Interval:
        """Return the time from the first window to the last."""
        return self.start_ms // self.step_ms * self.step_ms, window_end(self.end_ms, self.step_ms)


@dataclass(frozen=True)
class MetricCount:
    """Estimates. `metric` is the name as sent. `series`: active at any time of the reach; `by_window`: in each window.
    `now`: in the last window that was over at the end of the request, and is over by now."""

    metric: str
    series: int
    by_window: tuple[int, ...]
    now: int

    @property
    def most(self) -> int:
        return max(self.by_window, default=0)


@dataclass(frozen=True)
class LabelCount:
    """`whose`: series or resource. `values`: the number of distinct ones among the active series; an estimate unless
    `exact`."""

    whose: str
    label: str
    values: int
    exact: bool


@dataclass(frozen=True)
class Cardinality:
    """`windows`: the end of each in ms, and the tiers that it was counted from, RAW for points. Metrics with the most
    series come first, as do labels with the most values."""

    windows: tuple[tuple[int, tuple[int, ...]], ...]
    metrics: tuple[MetricCount, ...]
    labels: tuple[LabelCount, ...]
    truncated: bool
    account: Account


class MetricsLake(Protocol):
    """Answers queries about metrics of one `organization`, which comes from the caller's key.

    Lists are of series with a sample at start_ms <= time <= end_ms that meet all matchers of one of the selectors;
    without selectors, of all series. Calls block; they are safe from many threads."""

    def promql(self, organization: UUID, question: PromqlQuestion) -> SeriesAnswer:
        """Return at once. UserError for an invalid query; later errors are raised by the answer."""

    def explain(self, organization: UUID, question: PromqlQuestion, how: Explain) -> Answer:
        """Return the lines of EXPLAIN, in one column `plan`."""

    def series(
        self, organization: UUID, selectors: Selectors, start_ms: int, end_ms: int, *, limit: int, now_ns: int
    ) -> Listing: ...

    def label_names(
        self, organization: UUID, selectors: Selectors, start_ms: int, end_ms: int, *, limit: int, now_ns: int
    ) -> Listing: ...

    def label_values(
        self,
        organization: UUID,
        label: str,
        selectors: Selectors,
        start_ms: int,
        end_ms: int,
        *,
        limit: int,
        now_ns: int,
    ) -> Listing: ...

    def metadata(
        self, organization: UUID, *, metric: str | None, limit: int, limit_per_metric: int, now_ns: int
    ) -> Listing:
        """List metric families; `limit` counts families; `limit_per_metric` 0: all rows of each."""

    def exemplars(
        self, organization: UUID, selectors: Selectors, start_ms: int, end_ms: int, now_ns: int
    ) -> Listing: ...

    def samples(
        self, organization: UUID, selectors: Selectors, start_ms: int, end_ms: int, now_ns: int
    ) -> StoredSamples:
        """Return samples of series that meet one of the selectors, at start_ms <= time <= end_ms. TooLarge past a
        limit."""

    def cardinality(self, organization: UUID, question: CardinalityQuestion) -> Cardinality:
        """Count series. TooLarge if there are too many windows or metrics to count."""
