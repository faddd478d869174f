"""Cut an expression into fragments for workers: the parts in which each series is computed alone, and the aggregations
over them; and find which samples an expression reads.

Comes in: a resolved expression and its steps. Goes out: fragments, each over one selector, and the rest of the
expression, in which a Given stands for each. What always holds: the results of a fragment over parts of the series,
joined (or folded, if it is an aggregation), equal its result over all of them. The evaluator reads nothing beyond the
reaches, except what a lazy function selects by the values that it finds.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from lakerunner.model.labels.matcher import Matcher
from lakerunner.series.aggregations import SPLITS
from lakerunner.series.evaluation.evaluate import subquery_steps
from lakerunner.series.evaluation.names import may_collide
from lakerunner.series.expression import (
    Aggregate,
    Binary,
    Call,
    Expression,
    Given,
    Kind,
    Number,
    Paren,
    Range,
    Selector,
    Subquery,
    Unary,
    bare,
    parts,
    resolved,
    selects,
    with_parts,
)
from lakerunner.series.function import is_steady, kind_of
from lakerunner.series.language import Language
from lakerunner.series.values import Steps


@dataclass(frozen=True)
class Fragment:
    """A part of an expression with one selector. An Aggregate gives Partials, to be folded; any other expression a
    Vector."""

    expression: Expression
    steps: Steps


@dataclass(frozen=True)
class SplitExpression:
    """`rest` is the expression with a Given node for each of the `fragments`, by number."""

    rest: Expression
    fragments: tuple[Fragment, ...]


def split(
    expression: Expression,
    steps: Steps,
    language: Language,
    *,
    fold: bool = True,
    delayed_names: bool = False,
) -> SplitExpression:
    """Cut an expression into fragments. `fold` False: all aggregations are left to the rest, for those that turn out
    not to split. Without `delayed_names` a fragment ends where series may come to have the same labels: only all of
    them together show whether they do."""
    splitter = _Splitter(language, fold, delayed_names)
    rest = splitter.rest(expression, steps)
    return SplitExpression(rest, tuple(splitter.fragments))


class _Splitter:
    def __init__(self, language: Language, fold: bool, delayed_names: bool) -> None:
        self.fragments: dict[Fragment, int] = {}
        self._language = language
        self._functions = language.functions
        self._fold = fold
        self._delayed_names = delayed_names

    def rest(self, expression: Expression, steps: Steps) -> Expression:
        is_vector = kind_of(expression, self._functions) == Kind.VECTOR
        if self._folds(expression) or (is_vector and self._is_local(expression)):
            return self._cut(expression, steps)
        match expression:
            case Subquery(inner):
                within = subquery_steps(expression, steps, self._language)
                return expression if within is None else replace(expression, inner=self.rest(inner, within))
            case Call(name) if self._functions[name].lazy:
                return expression
            case Call(name) if self._functions[name].reads_expression:
                return with_parts(expression, lambda one: one if _is_plain(one) else self.rest(one, steps))
        return with_parts(expression, lambda one: self.rest(one, steps))

    def _folds(self, expression: Expression) -> bool:
        if not self._fold or not isinstance(expression, Aggregate) or expression.op not in SPLITS:
            return False
        parameter = expression.parameter
        return self._is_operand(expression.inner) and (parameter is None or isinstance(bare(parameter), Number))

    def _cut(self, expression: Expression, steps: Steps) -> Given:
        number = self.fragments.setdefault(Fragment(expression, steps), len(self.fragments))
        return Given(number, steady=is_steady(expression, self._functions), span=bare(expression).span)

    def _is_local(self, expression: Expression | None) -> bool:
        """Return whether the result of a series depends on that series alone, and there is one selector."""
        match expression:
            case Selector():
                return True
            case Range(selector):
                return self._is_local(selector)
            case Paren(inner):
                return self._is_local(inner)
            case Subquery(inner) | Unary(_, inner):
                return self._is_operand(inner)
            case Binary(_, left, right):
                one, other = (right, left) if selects(right) else (left, right)
                return self._is_operand(one) and kind_of(other, self._functions) == Kind.SCALAR and not selects(other)
            case Call(name, arguments):
                selecting = [one for one in arguments if selects(one)]
                function = self._functions[name]
                return function.per_series and len(selecting) == 1 and self._is_operand(selecting[0])
        return False

    def _is_operand(self, expression: Expression) -> bool:
        """Return whether a fragment may continue with it as its operand."""
        collides = not self._delayed_names and may_collide(expression, self._functions)
        return self._is_local(expression) and not collides


def _is_plain(expression: Expression) -> bool:
    return isinstance(bare(expression), Selector | Range)


@dataclass(frozen=True)
class Reach:
    """The samples with start < time <= end of the series that meet the matchers."""

    matchers: tuple[Matcher, ...]
    start: int
    end: int


def reaches(expression: Expression, steps: Steps, lookback: int, language: Language) -> Iterator[Reach]:
    """Yield the reach of each selector; none for a selector that no step looks at, as inside a subquery whose range
    lies between two of its own steps."""
    match expression:
        case Selector():
            _, behind = language.reach(expression, lookback)
            yield _reach(expression, steps, lookback, behind)
        case Range(selector, range_):
            before, behind = language.reach(selector, lookback)
            yield _reach(selector, steps, resolved(range_) + before, behind)
        case Subquery(inner):
            within = subquery_steps(expression, steps, language)
            if within is not None:
                yield from reaches(inner, within, lookback, language)
        case Call(name) if language.functions[name].lazy:
            return
        case _:
            for part in parts(expression):
                yield from reaches(part, steps, lookback, language)


def _reach(selector: Selector, steps: Steps, before: int, behind: int) -> Reach:
    """Compute the reach without arrays of steps: a subquery may have more steps than memory holds, and is refused when
    it is evaluated."""
    first, last = (steps.start, steps.last) if selector.at is None else [resolved(selector.at)] * 2
    offset = resolved(selector.offset)
    return Reach(selector.matchers, first - offset - before, last - offset + behind)
