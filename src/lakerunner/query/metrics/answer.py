"""What can be asked about metrics, and the answers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol
from uuid import UUID

from lakerunner.model.errors import UserError
from lakerunner.model.labels.matcher import Matcher
from lakerunner.model.tier import TIERS, window_end
from lakerunner.model.tiling import Interval
from lakerunner.model.time import MS_NS
from lakerunner.plan.explain import Explain
from lakerunner.promql.plan import PromqlQuestion
from lakerunner.query.account import Account
from lakerunner.query.answer import Answer
from lakerunner.query.series_answer import SeriesAnswer
from lakerunner.series.notes import Note
from lakerunner.series.values import Samples


@dataclass(frozen=True)
class Listing:
    """What is there: sorted, each once. `truncated`: there is more than the limit. Rows are Labels (series), str (label
    names and values), (metric, type, help, unit), or (Labels, exemplars), where an exemplar is a dict of `labels`
    (Labels), `value` (float) and `timestamp` (ms)."""

    rows: list[Any]
    truncated: bool
    account: Account


@dataclass(frozen=True)
class StoredSamples:
    """As they are stored, stale markers too; series are sorted by labels, each once. `notes` say what has expired."""

    samples: Samples
    notes: tuple[Note, ...]
    account: Account


@dataclass(frozen=True)
class CardinalityQuestion:
    """How many series there were, in windows of `step_ms` that end with its multiples: those that hold a moment of
    start_ms < time <= end_ms. `metric`: its name as it came or as Prometheus calls it; "": all, the `limit` with the
    most series. `labels`: also how many values each of the metric's labels has."""

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
        """A window that ends after this is not over."""
        return self.now_ns // MS_NS

    @property
    def reach(self) -> Interval:
        """From the first window to the last."""
        return self.start_ms // self.step_ms * self.step_ms, window_end(self.end_ms, self.step_ms)


@dataclass(frozen=True)
class MetricCount:
    """Estimates. `metric` is the name as it came. `series`: active at any time of the reach; `by_window`: in each
    window. `now`: in the last that was over at the question's end, and is by now."""

    metric: str
    series: int
    by_window: tuple[int, ...]
    now: int

    @property
    def most(self) -> int:
        return max(self.by_window, default=0)


@dataclass(frozen=True)
class LabelCount:
    """`whose`: series or resource. `values`: different ones, among the series that were active; an estimate unless
    `exact`."""

    whose: str
    label: str
    values: int
    exact: bool


@dataclass(frozen=True)
class Cardinality:
    """`windows`: the end of each in ms, and the tiers that it was counted from, RAW for points. Metrics with the most
    series come first, and so do labels with the most values."""

    windows: tuple[tuple[int, tuple[int, ...]], ...]
    metrics: tuple[MetricCount, ...]
    labels: tuple[LabelCount, ...]
    truncated: bool
    account: Account


class MetricsLake(Protocol):
    """Whatever answers questions about metrics. Whose they are is `organization`, which comes from the caller's key.

    Lists are of series with a sample at start_ms <= time <= end_ms that meet all matchers of one of the selectors; no
    selectors: of all series. Calls block; they are safe from many threads."""

    def promql(self, organization: UUID, question: PromqlQuestion) -> SeriesAnswer:
        """UserError at once for a text that cannot be asked; what goes wrong later is the answer's to raise."""

    def explain(self, organization: UUID, question: PromqlQuestion, how: Explain) -> Answer:
        """Return the lines of EXPLAIN, in one column `plan`."""

    def series(
        self,
        organization: UUID,
        selectors: Sequence[tuple[Matcher, ...]],
        start_ms: int,
        end_ms: int,
        *,
        limit: int,
        now_ns: int,
    ) -> Listing: ...

    def label_names(
        self,
        organization: UUID,
        selectors: Sequence[tuple[Matcher, ...]],
        start_ms: int,
        end_ms: int,
        *,
        limit: int,
        now_ns: int,
    ) -> Listing: ...

    def label_values(
        self,
        organization: UUID,
        label: str,
        selectors: Sequence[tuple[Matcher, ...]],
        start_ms: int,
        end_ms: int,
        *,
        limit: int,
        now_ns: int,
    ) -> Listing: ...

    def metadata(
        self, organization: UUID, *, metric: str | None, limit: int, limit_per_metric: int, now_ns: int
    ) -> Listing:
        """Of metric families; `limit` counts families, 0 of `limit_per_metric`: all of each."""

    def exemplars(
        self, organization: UUID, selectors: Sequence[tuple[Matcher, ...]], start_ms: int, end_ms: int, now_ns: int
    ) -> Listing: ...

    def samples(
        self, organization: UUID, selectors: Sequence[tuple[Matcher, ...]], start_ms: int, end_ms: int, now_ns: int
    ) -> StoredSamples:
        """Of series that meet one of the selectors, at start_ms <= time <= end_ms. TooLarge past a limit."""

    def cardinality(self, organization: UUID, question: CardinalityQuestion) -> Cardinality:
        """TooLarge past what can be counted at once."""
