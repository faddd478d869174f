"""Run one case in every way that must give the same answer: as it is; as the middle of a range; and, for an instant,
from other times with `@` after every selector."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

from conformance.answer import SameHistogram, middle_of, problem_of, problem_of_value, same_histogram
from conformance.script import Case
from conformance.subject import Subject
from lakerunner.model.errors import UserError
from lakerunner.promql.parse import parse
from lakerunner.promql.printer import expression_text
from lakerunner.series.expression import (
    Aggregate,
    Binary,
    Call,
    Expression,
    Paren,
    Range,
    Selector,
    Subquery,
    Unary,
    parts,
)
from lakerunner.series.values import Steps

MINUTE_MS = 60_000
# Their values depend on the time of the evaluation, even if their arguments do not.
OF_THE_MOMENT = frozenset(
    {"days_in_month", "day_of_month", "day_of_week", "day_of_year", "hour", "minute", "month", "year", "time"}
    | {"end", "range", "start", "step", "timestamp", "predict_linear"}
)
_OF_THE_QUESTION = re.compile(r"(start|end|range|step)\(\)")


def problem(case: Case, subject: Subject, same: SameHistogram = same_histogram, *, moved: bool = True) -> str | None:
    """Return what is wrong with the answers to this case; None if nothing is. `moved`: try it with `@` as well."""
    for query, steps in _ways(case, moved=moved):
        found = _problem(replace(case, query=query, steps=steps), subject, same)
        if found:
            return found if query == case.query else f"as {query} at {steps.start}: {found}"
    return None


def _ways(case: Case, *, moved: bool) -> Iterator[tuple[str, Steps]]:
    yield case.query, case.steps
    if not case.instant or not moved:
        return
    at = case.steps.start
    try:
        expression = parse(case.query)
    except UserError:
        return
    if not any(isinstance(node, Call) and node.function in OF_THE_MOMENT for node in _nodes(expression)):
        text = expression_text(fixed(expression, at))
        for moment in (-1000, 0, 1000) if at == 0 else (-10 * at, 0, at // 5, at, 10 * at):
            yield text, Steps(moment, moment)


def _problem(case: Case, subject: Subject, same: SameHistogram) -> str | None:
    answer = subject.ask(case.state, case.query, case.steps, instant=case.instant)
    found = problem_of(case, answer, same)
    if found or not case.instant or answer.error is not None or answer.kind not in ("scalar", "vector"):
        return found
    if _OF_THE_QUESTION.search(case.query):
        return None
    at = case.steps.start
    around = Steps(at - MINUTE_MS, at + MINUTE_MS, MINUTE_MS)
    ranged = subject.ask(case.state, case.query, around, instant=False)
    if ranged.error is not None:
        return f"in a range failed: {ranged.error}"
    if case.ordered:
        return None  # a range is always sorted by labels
    found = problem_of_value(case, middle_of(ranged, at, answer.kind), same)
    return f"in a range: {found}" if found else None


def _nodes(expression: Expression) -> Iterator[Expression]:
    yield expression
    for part in parts(expression):
        yield from _nodes(part)


def fixed(expression: Expression, at: int) -> Expression:
    """Add `@` at this time wherever there is none; inside a subquery that of the subquery applies."""
    match expression:
        case Selector():
            return expression if isinstance(expression.at, int) else replace(expression, at=at)
        case Range(selector):
            return replace(expression, selector=selector if isinstance(selector.at, int) else replace(selector, at=at))
        case Subquery():
            return expression if isinstance(expression.at, int) else replace(expression, at=at)
        case Paren(inner) | Unary(_, inner):
            return replace(expression, inner=fixed(inner, at))
        case Binary(_, left, right):
            return replace(expression, left=fixed(left, at), right=fixed(right, at))
        case Aggregate(_, inner, parameter):
            return replace(
                expression, inner=fixed(inner, at), parameter=None if parameter is None else fixed(parameter, at)
            )
        case Call(_, arguments):
            return replace(expression, arguments=tuple(fixed(one, at) for one in arguments))
    return expression
