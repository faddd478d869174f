"""Evaluate a fragment over blocks of series: each block as it comes, in parts that fit into memory.

Comes in: a fragment (series/evaluation/fragments.py), and blocks of samples or of rollups. Goes out: pieces. What
always holds: the series of a block are evaluated in parts whose values are at most POINTS_AT_ONCE, whatever the number
of series and steps. The cut depends on the data and the fragment alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from lakerunner.model.labels.matcher import Matcher
from lakerunner.series.aggregations import SPLITS
from lakerunner.series.bounds import Bounds
from lakerunner.series.evaluation.evaluate import Evaluator, most_steps
from lakerunner.series.evaluation.pieces import Piece
from lakerunner.series.evaluation.tiers import RollupCandidate, evaluate_candidate, with_given
from lakerunner.series.expression import Aggregate, Call, Expression, parts
from lakerunner.series.histograms.histogram import HISTOGRAM_POINTS
from lakerunner.series.language import Language
from lakerunner.series.notes import Notes
from lakerunner.series.rollups import RollupSeries
from lakerunner.series.values import NO_SAMPLES, Samples, Steps, Vector

POINTS_AT_ONCE = 8_000_000
S = TypeVar("S", Samples, RollupSeries)


@dataclass(frozen=True)
class BlockEvaluation:
    """How a fragment is evaluated: an Aggregate gives partials, any other expression vectors. `delayed_names`: metric
    names are removed when the whole evaluation ends, not at once."""

    expression: Expression
    steps: Steps
    language: Language
    lookback: int
    delayed_names: bool
    bounds: Bounds

    def of_samples(self, block: Samples) -> Iterator[Piece]:
        return (self._piece(part) for part in self._parts(block))

    def of_rollups(self, candidate: RollupCandidate, block: RollupSeries) -> Iterator[Piece]:
        """Evaluate the candidate from the buckets of rollups, and the rest of the fragment over the result."""
        if candidate.how is None:
            return self.of_samples(self.language.instant_selectors.of_rollups(block))
        return (self._candidate_piece(candidate, part) for part in self._parts(block.of_samples()))

    def _parts(self, block: S) -> Iterator[S]:
        """Cut a block into series that are evaluated at once."""
        each = HISTOGRAM_POINTS if self._makes_histograms(self.expression) else 1
        at_once = max(1, POINTS_AT_ONCE // (each * most_steps(self.expression, self.steps, self.language)))
        if len(block) <= at_once:
            yield block
            return
        for first in range(0, len(block), at_once):
            yield block.between(first, min(first + at_once, len(block)))

    def _makes_histograms(self, expression: Expression) -> bool:
        made = isinstance(expression, Call) and self.language.functions[expression.function].makes_histograms
        return made or any(map(self._makes_histograms, parts(expression)))

    def _candidate_piece(self, candidate: RollupCandidate, windows: RollupSeries) -> Piece:
        self.bounds.hold(len(windows), len(candidate.steps or ()))
        notes = Notes(self.language.words)
        vector = evaluate_candidate(candidate, windows, self.language, notes, Bounds(self.bounds.max_points))
        rest = replace(self, expression=with_given(self.expression, candidate))
        piece = rest._piece(NO_SAMPLES, (vector,))
        return replace(piece, notes=(*notes.all(), *piece.notes))

    def _piece(self, block: Samples, given: Sequence[Vector] = ()) -> Piece:
        evaluator = Evaluator(
            _Block(block),
            self.language,
            lookback=self.lookback,
            given=given,
            bounds=self.bounds,
            delayed_names=self.delayed_names,
        )
        expression = self.expression
        inner = expression.inner if isinstance(expression, Aggregate) else expression
        vector = evaluator.evaluate(inner, self.steps)
        if not isinstance(vector, Vector):
            raise TypeError(f"a fragment gives a vector, not {type(vector).__name__}")
        if not isinstance(expression, Aggregate):
            return Piece(vector.occupied(), evaluator.notes.all())
        partial = SPLITS[expression.op].partial(expression, vector, evaluator.notes)
        return Piece(partial, evaluator.notes.all())


class _Block:
    """The source of a fragment: its one selector gets these samples."""

    def __init__(self, samples: Samples) -> None:
        self._samples = samples

    def select(self, matchers: tuple[Matcher, ...], start: int, end: int) -> Samples:  # noqa: ARG002
        return self._samples
