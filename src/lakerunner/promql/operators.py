"""Operators of workers for PromQL: evaluate a fragment over some of the series, or return its samples.

Comes from promql/plan.py. What always holds: the pieces of all parts, folded in the order of the parts, equal the
result of the fragment over all series at once, bit for bit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, Protocol, TypeVar

from lakerunner.model.errors import TooLarge
from lakerunner.model.labels.matcher import Matcher
from lakerunner.model.labels.metric_view import metric_conditions
from lakerunner.model.time import MAX_NS, MIN_NS, MS_NS, TimeRange, interval_text, time_text
from lakerunner.plan.plan import ALL, Shard
from lakerunner.plan.scan import Scan
from lakerunner.promql.language import PROMQL
from lakerunner.promql.printer import expression_text
from lakerunner.series.aggregations import SPLITS
from lakerunner.series.bounds import Bounds, too_many_samples
from lakerunner.series.evaluation.blocks import BlockEvaluation
from lakerunner.series.evaluation.names import merge_distinct_parts
from lakerunner.series.evaluation.pieces import Piece, SeriesOperator, Untiered, join_samples, join_vectors
from lakerunner.series.evaluation.tiers import TierChoice, choose_tier
from lakerunner.series.expression import Aggregate, Expression, Selector, expression_from, expression_json
from lakerunner.series.notes import Notes
from lakerunner.series.rollups import NotTiered, RollupSeries
from lakerunner.series.values import Partial, Samples, Steps, Vector


@dataclass(frozen=True)
class Selection:
    """Which samples are read: those with start < time <= end, in ms, of the series that meet the matchers. `shard` is a
    worker's share of the series."""

    matchers: tuple[Matcher, ...]
    start: int
    end: int
    shard: Shard = ALL

    @property
    def time(self) -> TimeRange | None:
        """Return the time range in ns; None if it is beyond all possible timestamps."""
        start = (self.start + 1) * MS_NS if self.start * MS_NS > MIN_NS else MIN_NS
        end = min((self.end + 1) * MS_NS, MAX_NS)
        return TimeRange(start, end) if start < end else None

    @property
    def scan(self) -> Scan | None:
        """Return the scan of the segments that can hold such samples; None if there can be none."""
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


T = TypeVar("T")
Blocks = Iterable[Callable[[], T]]


class MetricSeries(Protocol):
    """The series of one unit, as a worker passes them in (query/metrics/unit_series.py)."""

    @property
    def reads_rollups(self) -> bool:
        """Return whether rollups are read instead of raw points for any part of the time."""

    def samples(self, selection: Selection) -> Blocks[Samples]:
        """Yield blocks of samples, each read when it is called. Each series is completely in one block."""

    def rollups(self, selection: Selection, facts: Sequence[str], limit: Bounds) -> Blocks[RollupSeries]:
        """Yield blocks of rollup buckets with these facts, each read when it is called. Raise NotTiered if rollups
        cannot stand for the samples."""

    def each(self, calls: Iterable[Callable[[], T]]) -> Iterator[T]:
        """Yield the result of each call, in their order; several run at once."""

    def check(self) -> None:
        """Raise if nobody waits for the results any more."""


@dataclass(frozen=True)
class Limits:
    """What one query may hold: series of an answer, samples and values in memory at once."""

    max_series: int = 200_000
    max_samples: int = 50_000_000

    def check(self, series: int, points: int) -> None:
        if points > self.max_samples:
            raise too_many_samples(self.max_samples)
        if series > self.max_series:
            raise self.too_many_series()

    def too_many_series(self) -> TooLarge:
        return TooLarge(
            f"more than {self.max_series:,} series (metrics_max_series): add matchers, or aggregate them, "
            "as in sum by (job) (...)"
        )


NO_LIMITS = Limits(1 << 62, 1 << 62)


@dataclass(frozen=True)
class SeriesFragment(SeriesOperator):
    """Evaluate an expression of one selector (series/evaluation/fragments.py): to vectors, or to partials of an
    aggregation. `selection` is None if no step looks at a sample."""

    name = "series"

    expression: Expression
    steps: Steps
    selection: Selection | None
    lookback: int
    delayed_names: bool = False
    limits: Limits = NO_LIMITS

    @property
    def text(self) -> str:
        return expression_text(self.expression)

    @cached_property
    def tier_choice(self) -> TierChoice:
        """Decide which rollups give the same results."""
        return choose_tier(self.expression, self.steps, PROMQL)

    def run(self, series: MetricSeries) -> Iterator[Piece]:
        if self.selection is None:
            return
        bounds = Bounds(self.limits.max_samples, series.check)
        names = self.delayed_names
        evaluation = BlockEvaluation(self.expression, self.steps, PROMQL, self.lookback, names, bounds)
        if not series.reads_rollups:
            yield from _evaluated(series, evaluation.of_samples, series.samples(self.selection))
            return
        candidate = self.tier_choice.candidate
        if candidate is None:
            raise ValueError("a unit with tiles that no tier serves")
        try:
            blocks = series.rollups(self.selection, candidate.facts, Bounds(self.limits.max_samples))
            yield from _evaluated(series, partial(evaluation.of_rollups, candidate), blocks)
        except NotTiered as error:
            yield Piece(Untiered(str(error)))

    def check_points(self, points: int) -> None:
        self.limits.check(0, points)

    def fold(self, pieces: Sequence[Piece], notes: Notes) -> Vector:
        """Join or fold the pieces of all parts, in the order of the parts."""
        for piece in pieces:
            notes.add(piece.notes)
        if isinstance(self.expression, Aggregate):
            partials = [piece.value for piece in pieces if isinstance(piece.value, Partial)]
            if not partials:
                return join_vectors((), len(self.steps))
            return SPLITS[self.expression.op].fold(self.expression, partials, notes)
        vectors = [piece.value for piece in pieces if isinstance(piece.value, Vector)]
        self.limits.check(sum(map(len, vectors)), sum(vector.values.size for vector in vectors))
        vector = join_vectors(vectors, len(self.steps))
        return vector if self.delayed_names else merge_distinct_parts(self.expression, vector, PROMQL.functions)

    def to_json(self) -> dict[str, Any]:
        return {
            "expression": expression_json(self.expression),
            "steps": [self.steps.start, self.steps.end, self.steps.step],
            "selection": self.selection and self.selection.to_json(),
            "lookback": self.lookback,
            "delayed_names": self.delayed_names,
            "limits": [self.limits.max_series, self.limits.max_samples],
        }

    @classmethod
    def from_json(cls, given: Mapping[str, Any]) -> SeriesFragment:
        selection = given["selection"]
        return cls(
            expression_from(given["expression"]),
            Steps(*given["steps"]),
            selection and Selection.from_json(selection),
            given["lookback"],
            given["delayed_names"],
            Limits(*given["limits"]),
        )

    def lines(self) -> Iterator[str]:
        what = "partials of" if isinstance(self.expression, Aggregate) else "series of"
        yield f"{what} {self.text}"
        yield steps_text(self.steps)


@dataclass(frozen=True)
class FetchSamples(SeriesOperator):
    """Return the samples unchanged."""

    name = "samples"

    selection: Selection
    limits: Limits = NO_LIMITS

    @property
    def text(self) -> str:
        return expression_text(Selector(self.selection.matchers))

    def run(self, series: MetricSeries) -> Iterator[Piece]:
        return _evaluated(series, lambda samples: (Piece(samples),), series.samples(self.selection))

    def check_points(self, points: int) -> None:
        self.limits.check(0, points)

    def fold(self, pieces: Sequence[Piece], _notes: Notes) -> Samples:
        samples = join_samples([piece.value for piece in pieces if isinstance(piece.value, Samples)])
        self.limits.check(len(samples), len(samples.times))
        return samples

    def to_json(self) -> dict[str, Any]:
        limits = [self.limits.max_series, self.limits.max_samples]
        return {"selection": self.selection.to_json(), "limits": limits}

    @classmethod
    def from_json(cls, given: Mapping[str, Any]) -> FetchSamples:
        return cls(Selection.from_json(given["selection"]), Limits(*given["limits"]))

    def lines(self) -> Iterator[str]:
        yield f"samples of {self.text}"


def steps_text(steps: Steps) -> str:
    start = time_text(steps.start * MS_NS)
    if len(steps) == 1:
        return f"at {start}"
    return f"from {start} to {time_text(steps.last * MS_NS)}, {len(steps)} steps of {interval_text(steps.step * MS_NS)}"


def _evaluated(series: MetricSeries, evaluate: Callable[[T], Iterable[Piece]], blocks: Blocks[T]) -> Iterator[Piece]:
    """Yield the pieces of all blocks, several of which are evaluated at once."""

    def pieces(block: Callable[[], T]) -> list[Piece]:
        series.check()
        return list(evaluate(block()))

    for found in series.each(partial(pieces, one) for one in blocks):
        yield from found
