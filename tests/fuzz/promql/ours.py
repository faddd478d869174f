"""Our engine's answer in the JSON of the API, without the API."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from fuzz.promql.grammar import Query
from lakerunner.api.formats.series_json import result_json
from lakerunner.api.prometheus.request import invalid
from lakerunner.api.prometheus.response import PrometheusError, note_texts, query_text, to_execution_error
from lakerunner.model.errors import UserError
from lakerunner.promql.functions import FUNCTIONS
from lakerunner.promql.language import PROMQL
from lakerunner.promql.parse import parse
from lakerunner.promql.plan import PromqlQuestion, range_samples
from lakerunner.promql.resolve import resolve
from lakerunner.query.series_answer import StepGroup
from lakerunner.series.evaluation.evaluate import evaluate
from lakerunner.series.expression import Expression
from lakerunner.series.function import Source, kind_of
from lakerunner.series.notes import Notes
from lakerunner.series.values import Samples, Scalar, Steps, String, Value, Vector, Windows, sort_by_labels

_ALL = 1 << 62
Evaluated = Callable[[Expression, Steps, Source], tuple[Value, Notes]]


def whole(*, delayed_names: bool) -> Evaluated:
    def evaluated(expression: Expression, steps: Steps, source: Source) -> tuple[Value, Notes]:
        return evaluate(expression, steps, source, PROMQL, delayed_names=delayed_names)

    return evaluated


def answer(query: Query, source: Source, evaluated: Evaluated) -> dict[str, Any]:
    try:
        value, notes = _asked(query, source, evaluated)
    except PrometheusError as refused:
        return {"status": "error", "errorType": refused.type, "error": refused.message}
    kind, chunks, _ = result_json([StepGroup(query.steps, value)], query.instant, _ALL)
    return {
        "status": "success",
        "data": {"resultType": kind, "result": json.loads(b"".join(chunks))},
        "warnings": note_texts(notes.all(), "warning", query.text),
        "infos": note_texts(notes.all(), "info", query.text),
    }


def _asked(query: Query, source: Source, evaluated: Evaluated) -> tuple[Vector | Scalar | String | Samples, Notes]:
    try:
        parsed = parse(query.text)
        PromqlQuestion(query.text, query.steps, query.instant, 0).check(kind_of(parsed, FUNCTIONS))
        expression = resolve(parsed, query.steps, query.instant)
    except UserError as error:
        raise invalid("query", query_text(error)) from error
    try:
        value, notes = evaluated(expression, query.steps, source)
        if isinstance(value, Windows):
            return range_samples(value), notes
    except UserError as error:
        raise to_execution_error(error) from error
    return (sort_by_labels(value) if isinstance(value, Vector) and not query.instant else value), notes
