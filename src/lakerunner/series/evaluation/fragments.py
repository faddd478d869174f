"""What of an expression workers do: the parts in which each series is a matter of its own, and the aggregations over
them.

Comes in: an expression and its steps. Goes out: fragments, each over one selector, and the rest of the expression, in
which a Given stands for each. What always holds: a fragment evaluated over parts of the series, its results put
together (or folded, where it is an aggregation), is what it gives over all of them.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TypeVar

from lakerunner.series.aggregations import SPLITS
from lakerunner.series.evaluation.evaluate import kind_of, subquery_steps
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
)
from lakerunner.series.language import Language
from lakerunner.series.steady import is_steady
from lakerunner.series.values import Steps

T = TypeVar("T")


@dataclass(frozen=True)
class Fragment:
    """`expression` has one selector. An Aggregate gives Partials, to be folded; any other expression a Vector."""

    expression: Expression
    steps: Steps

    @property
    def folds(self) -> bool:
        return isinstance(self.expression, Aggregate)


@dataclass(frozen=True)
class Split:
    """`rest` with its Given nodes, which are the fragments by number."""

    rest: Expression
    fragments: tuple[Fragment, ...]


def split(
    expression: Expression,
    steps: Steps,
    language: Language,
    *,
    fold: bool = True,
    delayed_names: bool = False,
) -> Split:
    """`fold` False: aggregations are all done in the end, for those that turn out not to split. Without `delayed_names`
    a fragment ends where series may come to have the same labels: only all of them together show whether they do."""
    splitter = _Splitter(language, fold, delayed_names)
    rest = splitter.rest(expression, steps)
    return Split(rest, tuple(splitter.fragments))


class _Splitter:
    def __init__(self, language: Language, fold: bool, delayed_names: bool) -> None:
        self.fragments: dict[Fragment, int] = {}
        self._language = language
        self._functions = language.functions
        self._fold = fold
        self._delayed_names = delayed_names

    def rest(self, expression: Expression, steps: Steps) -> Expression:
        if self._folds(expression) or (self._is_local(expression) and self._is_vector(expression)):
            return self._cut(expression, steps)
        match expression:
            case Subquery(inner):
                within = subquery_steps(expression, steps, self._language)
                return expression if within is None else replace(expression, inner=self.rest(inner, within))
            case Paren(inner) | Unary(_, inner):
                return replace(expression, inner=self.rest(inner, steps))
            case Binary(_, left, right):
                return replace(expression, left=self.rest(left, steps), right=self.rest(right, steps))
            case Aggregate(_, inner, parameter):
                given = None if parameter is None else self.rest(parameter, steps)
                return replace(expression, inner=self.rest(inner, steps), parameter=given)
            case Call(name) if self._functions[name].lazy:
                return expression
            case Call(name, arguments):
                kept = self._functions[name].reads_expression
                cut = [one if kept and _is_plain(one) else self.rest(one, steps) for one in arguments]
                return replace(expression, arguments=tuple(cut))
        return expression

    def _folds(self, expression: Expression) -> bool:
        if not self._fold or not isinstance(expression, Aggregate) or expression.op not in SPLITS:
            return False
        parameter = expression.parameter
        return self._is_operand(expression.inner) and (parameter is None or isinstance(bare(parameter), Number))

    def _is_vector(self, expression: Expression) -> bool:
        return kind_of(expression, self._functions) == Kind.VECTOR

    def _cut(self, expression: Expression, steps: Steps) -> Given:
        number = self.fragments.setdefault(Fragment(expression, steps), len(self.fragments))
        return Given(number, steady=is_steady(expression, self._functions), span=bare(expression).span)

    def _is_local(self, expression: Expression | None) -> bool:
        """Whether what comes of a series depends on that series alone, and there is one selector."""
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
                one, other = (right, left) if _selects(right) else (left, right)
                return self._is_operand(one) and kind_of(other, self._functions) == Kind.SCALAR and not _selects(other)
            case Call(name, arguments):
                selecting = [one for one in arguments if _selects(one)]
                function = self._functions[name]
                return function.per_series and len(selecting) == 1 and self._is_operand(selecting[0])
        return False

    def _is_operand(self, expression: Expression) -> bool:
        """Whether a fragment may go on with it."""
        collides = not self._delayed_names and may_collide(expression, self._functions)
        return self._is_local(expression) and not collides


def _is_plain(expression: Expression) -> bool:
    return isinstance(bare(expression), Selector | Range)


def _selects(expression: Expression | None) -> bool:
    if expression is None:
        return False
    return isinstance(bare(expression), Selector) or any(map(_selects, parts(expression)))
