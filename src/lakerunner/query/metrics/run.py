"""A unit of metrics, worked out by a worker of this process: samples block by block, each evaluated as it comes.

What always holds: at most as many blocks of samples are in memory as there are cores, and one more, and of the series
of each so many are evaluated at once that their values are no more than POINTS_AT_ONCE, whatever the number of series
and steps; a unit that would give more points than it may is refused, with the limit's name. The cut depends on the data
and the query alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from threading import Event
from typing import Any, TypeVar

import pyarrow as pa

from lakerunner.model.errors import Corrupt
from lakerunner.model.labels.matcher import Matcher
from lakerunner.model.segment import Segment
from lakerunner.query.account import Account, Missing
from lakerunner.query.failures import cancelled
from lakerunner.query.metrics.pieces import SCHEMA, Listed, Piece, Untiered, to_batch
from lakerunner.query.metrics.rows import rows_of
from lakerunner.query.metrics.segments import MetricSegments
from lakerunner.query.metrics.unit import Evaluate, Fetch, List, MetricsUnit
from lakerunner.query.slots import Slots
from lakerunner.series.aggregations import SPLITS
from lakerunner.series.bounds import Bounds, too_many_samples
from lakerunner.series.evaluation.evaluate import Evaluator, most_steps
from lakerunner.series.evaluation.tiers import Heart, evaluated, guard, with_given
from lakerunner.series.expression import Aggregate, Call, Expression, parts
from lakerunner.series.function import Function
from lakerunner.series.histograms.histogram import HISTOGRAM_POINTS
from lakerunner.series.notes import Notes
from lakerunner.series.rolled import NotTiered, Rolled
from lakerunner.series.values import NO_SAMPLES, Samples, Vector

POINTS_AT_ONCE = 8_000_000
S = TypeVar("S", Samples, Rolled)


class MetricsRunning:
    """An Answer, and Pieces. One thread reads it; any thread may close it."""

    schema: pa.Schema = SCHEMA

    def __init__(
        self,
        unit: MetricsUnit,
        segments: MetricSegments,
        slots: Slots,
        functions: Mapping[str, Function],
        clock: Callable[[], float],
    ) -> None:
        self.account = Account()
        self._unit = unit
        self._segments = segments
        self._slots = slots
        self._functions = functions
        self._clock = clock
        self._stopped = Event()

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        return map(to_batch, self.pieces())

    def pieces(self) -> Iterator[Piece]:
        asked = self._clock()
        with ExitStack() as held:
            self._slots.take(held, self._unit.organization, self._stopped)
            began = self._clock()
            yield from self._attempt()
            self.account += Account(seconds={"wait": began - asked, "run": self._clock() - began})

    def close(self) -> None:
        self._stopped.set()

    def _attempt(self) -> Iterator[Piece]:
        """All segments at once; if one cannot be read and the answer may be partial, those that can."""
        try:
            found = list(self._limited(self._unit.segments)) if self._unit.partial else None
        except Corrupt:
            found = list(self._limited(self._readable()))
        yield from self._limited(self._unit.segments) if found is None else found

    def _readable(self) -> tuple[Segment, ...]:
        good = []
        for segment in self._unit.segments:
            try:
                for _ in self._over((segment,)):
                    pass
            except Corrupt as error:
                self.account += Account(missing=(Missing(1, segment.time, str(error)),))
            else:
                good.append(segment)
        return tuple(good)

    def _over(self, segments: tuple[Segment, ...]) -> Iterator[Piece]:
        task = self._unit.task
        if isinstance(task, List):
            yield Piece(Listed(self._listed(task, segments)))
            return
        if isinstance(task, Evaluate) and self._unit.tiles:
            yield from self._from_windows(task, segments)
            return
        blocks = self._segments.samples(segments, self._unit.selection)
        for pieces in self._segments.each(partial(self._pieces, task, part) for part in blocks.parts()):
            yield from pieces
        self.account += blocks.account

    def _pieces(self, task: Evaluate | Fetch, block: Callable[[], Samples]) -> list[Piece]:
        self._check_wanted()
        samples = block()
        if isinstance(task, Fetch):
            return [Piece(samples)]
        return [self._evaluated(task, part) for part in self._parts(task, samples)]

    def _from_windows(self, task: Evaluate, segments: tuple[Segment, ...]) -> Iterator[Piece]:
        heart = guard(task.expression, task.steps, self._functions).heart
        if heart is None:
            raise ValueError("a unit with tiles that no tier serves")
        limit = Bounds(self._unit.max_points)
        blocks = self._segments.windows(segments, self._unit.selection, self._unit.tiles, heart.facts, limit)
        try:
            for pieces in self._segments.each(partial(self._of_windows, task, heart, part) for part in blocks.parts()):
                yield from pieces
        except NotTiered as error:
            yield Piece(Untiered(str(error)))
        self.account += blocks.account

    def _of_windows(self, task: Evaluate, heart: Heart, block: Callable[[], Rolled]) -> list[Piece]:
        self._check_wanted()
        windows = block()
        if heart.how is None:
            return [self._evaluated(task, part) for part in self._parts(task, windows.latest())]
        return [self._evaluated_heart(task, heart, part) for part in self._parts(task, windows.of_samples())]

    def _parts(self, task: Evaluate, block: S) -> Iterator[S]:
        """Series that are evaluated at once."""
        each = HISTOGRAM_POINTS if self._makes_histograms(task.expression) else 1
        at_once = max(1, POINTS_AT_ONCE // (each * most_steps(task.expression, task.steps)))
        if len(block) <= at_once:
            yield block
            return
        for first in range(0, len(block), at_once):
            yield block.between(first, min(first + at_once, len(block)))

    def _makes_histograms(self, expression: Expression) -> bool:
        made = isinstance(expression, Call) and self._functions[expression.function].makes_histograms
        return made or any(map(self._makes_histograms, parts(expression)))

    def _evaluated_heart(self, task: Evaluate, heart: Heart, windows: Rolled) -> Piece:
        """The rest of the fragment over what windows give for its innermost part."""
        limit = Bounds(self._unit.max_points)
        limit.hold(len(windows), len(heart.steps or ()))
        notes = Notes()
        vector = evaluated(heart, windows, self._functions, notes, limit)
        rest = replace(task, expression=with_given(task.expression, heart))
        piece = self._evaluated(rest, NO_SAMPLES, (vector,))
        return replace(piece, notes=(*notes.all(), *piece.notes))

    def _evaluated(self, task: Evaluate, block: Samples, given: Sequence[Vector] = ()) -> Piece:
        bounds = Bounds(self._unit.max_points, self._check_wanted)
        evaluator = Evaluator(
            _Block(block),
            self._functions,
            lookback=task.lookback,
            given=given,
            bounds=bounds,
            delayed_names=task.delayed_names,
        )
        expression = task.expression
        if not isinstance(expression, Aggregate):
            value = evaluator.evaluate(expression, task.steps)
            if not isinstance(value, Vector):
                raise TypeError(f"a fragment gives a vector, not {type(value).__name__}")
            return Piece(value.occupied(), evaluator.notes.all())
        vector = evaluator.evaluate(expression.inner, task.steps)
        if not isinstance(vector, Vector):
            raise TypeError(f"an aggregation takes a vector, not {type(vector).__name__}")
        partial = SPLITS[expression.op].partial(expression, vector, evaluator.notes)
        return Piece(partial, evaluator.notes.all())

    def _listed(self, task: List, segments: tuple[Segment, ...]) -> list[Any]:
        rows = []
        for row in rows_of(task, self._segments, segments, self._unit.selection, self._unit.tiles):
            self._check_wanted()
            rows.append(row)
            if len(rows) > task.limit:
                break
        self.account += Account(read=len(segments))
        return rows

    def _limited(self, segments: tuple[Segment, ...]) -> Iterator[Piece]:
        points = 0
        for piece in self._over(segments):
            points += piece.points
            if points > self._unit.max_points:
                raise too_many_samples(self._unit.max_points)
            yield piece

    def _check_wanted(self) -> None:
        if self._stopped.is_set():
            raise cancelled()


class _Block:
    """The source of a fragment: its one selector gets these samples."""

    def __init__(self, samples: Samples) -> None:
        self._samples = samples

    def select(self, matchers: tuple[Matcher, ...], start: int, end: int) -> Samples:  # noqa: ARG002
        return self._samples
