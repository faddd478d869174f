"""A query worked out in parts, as the engine has workers do it (query/metrics/engine.py): fragments over parts of the
series, put together or folded, and the rest of the expression over what came of them."""

from __future__ import annotations

from collections.abc import Sequence

from lakerunner.plan.aggregations import SPLITS
from lakerunner.plan.aggregations.split import NotSplit
from lakerunner.plan.vectors.evaluate import Evaluator, finished
from lakerunner.plan.vectors.expression import Aggregate, Expression
from lakerunner.plan.vectors.function import Source
from lakerunner.plan.vectors.notes import Notes
from lakerunner.plan.vectors.split import Fragment, split
from lakerunner.plan.vectors.values import Partial, Steps, Value, Vector
from lakerunner.promql.functions import FUNCTIONS
from lakerunner.query.metrics.joined import joined_vectors


def evaluated_in_parts(
    expression: Expression, steps: Steps, whole: Source, parts: Sequence[Source]
) -> tuple[Value, Notes]:
    """`parts` have each series of the whole once."""
    try:
        return _evaluated(expression, steps, whole, parts, fold=True)
    except NotSplit:
        return _evaluated(expression, steps, whole, parts, fold=False)


def _evaluated(
    expression: Expression, steps: Steps, whole: Source, parts: Sequence[Source], *, fold: bool
) -> tuple[Value, Notes]:
    cut = split(expression, steps, FUNCTIONS, fold=fold)
    notes = Notes()
    given = [_of_all(fragment, parts, notes) for fragment in cut.fragments]
    evaluator = Evaluator(whole, FUNCTIONS, given=given)
    value = finished(evaluator.evaluate(cut.rest, steps))
    notes.add(evaluator.notes.all())
    return value, notes


def _of_all(fragment: Fragment, parts: Sequence[Source], notes: Notes) -> Vector:
    pieces = [_of_one(fragment, part, notes) for part in parts]
    if isinstance(fragment.expression, Aggregate):
        partials = [piece for piece in pieces if isinstance(piece, Partial)]
        return SPLITS[fragment.expression.op].fold(fragment.expression, partials, notes)
    return joined_vectors([piece for piece in pieces if isinstance(piece, Vector)], len(fragment.steps))


def _of_one(fragment: Fragment, part: Source, notes: Notes) -> Vector | Partial:
    evaluator = Evaluator(part, FUNCTIONS)
    expression = fragment.expression
    value = evaluator.evaluate(expression.inner if isinstance(expression, Aggregate) else expression, fragment.steps)
    assert isinstance(value, Vector)
    piece = (
        SPLITS[expression.op].partial(expression, value, evaluator.notes)
        if isinstance(expression, Aggregate)
        else value.occupied()
    )
    notes.add(evaluator.notes.all())
    return piece
