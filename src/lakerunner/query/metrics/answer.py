"""A PromQL question, and the contract of its answer."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol
from uuid import UUID

from lakerunner.model.errors import UserError
from lakerunner.model.labels.matcher import Matcher
from lakerunner.model.tier import TIERS, window_end
from lakerunner.model.tiling import Interval
from lakerunner.model.time import MS_NS
from lakerunner.query.account import Account
from lakerunner.query.metrics.reads import Read
from lakerunner.series.expression import Kind
from lakerunner.series.notes import Note
from lakerunner.series.values import Samples, Scalar, Steps, String, Vector

LOOKBACK_MS = 300_000


@dataclass(frozen=True)
class MetricsQuestion:
    """`instant`: one moment, which alone may give a range vector. `partial`: what cannot be read is named in the
    account instead of being an error. `streamed`: in groups of time, the first of them soon, which takes longer in
    all. `raw`: of raw points alone, whatever rollups there are."""

    text: str
    steps: Steps
    instant: bool
    now_ns: int
    lookback_ms: int = LOOKBACK_MS
    partial: bool = False
    streamed: bool = False
    raw: bool = False

    def check(self, kind: Kind) -> None:
        """UserError where an expression of this kind has no value over a range."""
        if not self.instant and kind in (Kind.STRING, Kind.MATRIX):
            shown = "range vector" if kind is Kind.MATRIX else kind.value
            raise UserError(f'invalid expression type "{shown}" for range query, must be Scalar or instant Vector')


@dataclass(frozen=True)
class Group:
    """A stretch of the question's steps and the value there; its series have their final labels. Samples: of a range
    vector. Series are sorted by labels, but those of an instant in the order of the evaluation."""

    steps: Steps
    value: Vector | Scalar | String | Samples


class MetricsAnswer(Protocol):
    """Groups in the order of time, as they are worked out; a series may be in many. An answer that ends without an
    error is whole, but for what its account names as missing."""

    @property
    def kind(self) -> Kind:
        """Of the expression, before anything is worked out."""

    @property
    def notes(self) -> tuple[Note, ...]:
        """So far; all of them at the end."""

    @property
    def account(self) -> Account:
        """What it took so far, from any thread."""

    @property
    def reads(self) -> tuple[Read, ...]:
        """Which tiers were read, so far."""

    def __iter__(self) -> Iterator[Group]:
        """Once. UserError when the query fails, TooLarge past a limit."""

    def close(self) -> None:
        """Stop the work, from any thread. Closing twice is fine."""


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

    def promql(self, organization: UUID, question: MetricsQuestion) -> MetricsAnswer:
        """UserError at once for a text that cannot be asked; what goes wrong later is the answer's to raise."""

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
