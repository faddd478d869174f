"""Find a smaller query that still shows a difference: nodes are replaced by what is inside them, modifiers and labels
are removed, as long as the difference stays."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

from fuzz.promql.grammar import Query
from lakerunner.model.errors import UserError
from lakerunner.promql.parse import parse
from lakerunner.promql.printer import expression_text
from lakerunner.series.expression import (
    Aggregate,
    Binary,
    Call,
    Expression,
    Matching,
    Number,
    Paren,
    Range,
    Selector,
    Subquery,
    Unary,
    parts,
)
from lakerunner.series.values import Steps

_MOST_TRIES = 400


def shrunk(query: Query, differs: Callable[[Query], bool]) -> Query:
    tries = _MOST_TRIES
    smaller = True
    while smaller:
        smaller = False
        for candidate in _candidates(query):
            tries -= 1
            if tries < 0:
                return query
            if differs(candidate):
                query, smaller = candidate, True
                break
    return query


def _candidates(query: Query) -> Iterator[Query]:
    steps = query.steps
    if not query.instant and len(steps) > 1:
        yield replace(query, steps=Steps(steps.start, steps.start, steps.step))
        yield replace(query, steps=Steps(steps.last, steps.last, steps.step))
        middle = steps.start + len(steps) // 2 * steps.step
        yield replace(query, steps=Steps(steps.start, middle - steps.step, steps.step))
        yield replace(query, steps=Steps(middle, steps.last, steps.step))
    try:
        expression = parse(query.text)
    except UserError:
        return
    for smaller in _smaller(expression):
        text = expression_text(smaller)
        if len(text) < len(query.text):
            yield replace(query, text=text)


def _smaller(expression: Expression) -> Iterator[Expression]:
    """Yield smaller expressions, the largest reductions first."""
    yield from parts(expression)
    yield from _without(expression)
    for place, part in enumerate(parts(expression)):
        for one in _smaller(part):
            yield _with_part(expression, place, one)


def _without(expression: Expression) -> Iterator[Expression]:
    """Yield the node with parts removed."""
    match expression:
        case Selector() | Subquery():
            yield replace(expression, offset=0, at=None)
            yield replace(expression, offset=0)
            yield replace(expression, at=None)
            if isinstance(expression, Selector):
                for matcher in expression.matchers:
                    if matcher.name != "__name__":
                        rest = tuple(one for one in expression.matchers if one is not matcher)
                        yield replace(expression, matchers=rest)
        case Aggregate():
            for label in expression.grouping:
                yield replace(expression, grouping=tuple(one for one in expression.grouping if one != label))
        case Binary() if expression.matching is not None:
            card = expression.matching.card
            yield replace(expression, matching=Matching("many-to-many" if card == "many-to-many" else "one-to-one"))
            yield replace(expression, matching=replace(expression.matching, fill_left=None, fill_right=None))
            yield replace(expression, matching=replace(expression.matching, include=()))
        case Number():
            yield Number(1.0)


def _with_part(expression: Expression, place: int, part: Expression) -> Expression:
    match expression:
        case Range() if isinstance(part, Selector):
            return replace(expression, selector=part)
        case Subquery() | Paren() | Unary():
            return replace(expression, inner=part)
        case Binary():
            return replace(expression, left=part) if place == 0 else replace(expression, right=part)
        case Aggregate(_, _, parameter):
            is_parameter = parameter is not None and place == 0
            return replace(expression, parameter=part) if is_parameter else replace(expression, inner=part)
        case Call(_, arguments):
            return replace(expression, arguments=(*arguments[:place], part, *arguments[place + 1 :]))
    return expression
