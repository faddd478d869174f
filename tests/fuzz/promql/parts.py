"""Evaluate a query in parts, as the engine lets workers do it (query/series_answer.py): fragments over parts of the
series, joined or folded, and the rest of the expression over their results."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from lakerunner.promql.functions import FUNCTIONS
from lakerunner.promql.language import PROMQL
from lakerunner.promql.selection.notes import WORDS
from lakerunner.series.aggregations import SPLITS
from lakerunner.series.aggregations.aggregation import NotSplit
from lakerunner.series.evaluation.evaluate import Evaluator, finish
from lakerunner.series.evaluation.fragments import Fragment, split
from lakerunner.series.evaluation.names import merge_distinct_parts
from lakerunner.series.evaluation.pieces import join_vectors
from lakerunner.series.expression import Aggregate, Expression
from lakerunner.series.function import Source
from lakerunner.series.notes import Notes
from lakerunner.series.values import Partial, Steps, Value, Vector


@dataclass(frozen=True)
class InParts:
    """An `Evaluated` (ours.py). Each series is in exactly one of the `parts`."""

    parts: Sequence[Source]
    delayed_names: bool

    def __call__(self, expression: Expression, steps: Steps, whole: Source) -> tuple[Value, Notes]:
        try:
            return self._evaluated(expression, steps, whole, fold=True)
        except NotSplit:
            return self._evaluated(expression, steps, whole, fold=False)

    def _evaluated(self, expression: Expression, steps: Steps, whole: Source, *, fold: bool) -> tuple[Value, Notes]:
        cut = split(expression, steps, PROMQL, fold=fold, delayed_names=self.delayed_names)
        notes = Notes(WORDS)
        given = [self._of_all(fragment, notes) for fragment in cut.fragments]
        evaluator = Evaluator(whole, PROMQL, given=given, delayed_names=self.delayed_names)
        value = finish(evaluator.evaluate(cut.rest, steps))
        notes.add(evaluator.notes.all())
        return value, notes

    def _of_all(self, fragment: Fragment, notes: Notes) -> Vector:
        pieces = [self._of_one(fragment, part, notes) for part in self.parts]
        if isinstance(fragment.expression, Aggregate):
            partials = [piece for piece in pieces if isinstance(piece, Partial)]
            return SPLITS[fragment.expression.op].fold(fragment.expression, partials, notes)
        vector = join_vectors([piece for piece in pieces if isinstance(piece, Vector)], len(fragment.steps))
        return vector if self.delayed_names else merge_distinct_parts(fragment.expression, vector, FUNCTIONS)

    def _of_one(self, fragment: Fragment, part: Source, notes: Notes) -> Vector | Partial:
        evaluator = Evaluator(part, PROMQL, delayed_names=self.delayed_names)
        expression = fragment.expression
        inner = expression.inner if isinstance(expression, Aggregate) else expression
        value = evaluator.evaluate(inner, fragment.steps)
        assert isinstance(value, Vector)
        piece = (
            SPLITS[expression.op].partial(expression, value, evaluator.notes)
            if isinstance(expression, Aggregate)
            else value.occupied()
        )
        notes.add(evaluator.notes.all())
        return piece
