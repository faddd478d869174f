"""Which tier of rollups gives the same answer as samples do: the guard, docs/formats/tiers.md.

Comes in: a fragment (series/evaluation/fragments.py) and its steps. Goes out: the node at its heart, which alone looks
at samples, and the widest windows that it can be made of, or why there are none. What always holds: where a tier is
given, every moment that a step looks at and every beginning of a range is an end of its windows, so that each window is
inside a range or outside it, whole.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from lakerunner.model.tier import RAW, TIER_WIDTHS, TIERS, tier_text
from lakerunner.series.bounds import Bounds
from lakerunner.series.evaluation.evaluate import looked_at, subquery_steps
from lakerunner.series.expression import (
    Aggregate,
    Binary,
    Call,
    Expression,
    Given,
    Paren,
    Range,
    Selector,
    Subquery,
    Unary,
    bare,
    parts,
)
from lakerunner.series.function import Function
from lakerunner.series.language import Language
from lakerunner.series.notes import Notes
from lakerunner.series.rolled import COUNT, INSTANT, FromWindows, Rolled, RolledRange
from lakerunner.series.values import Steps, Vector

_TEXT_OF_EXTENDED = "{} looks at samples outside its range"


@dataclass(frozen=True)
class Heart:
    """The innermost part of a fragment: a selector, or a function of a range of one. `steps` are those at which it is
    evaluated, None: at none; `how` is None for a selector."""

    node: Selector | Call
    steps: Steps | None
    how: FromWindows | None

    @property
    def selector(self) -> Selector:
        return self.node if isinstance(self.node, Selector) else self.ranged.selector

    @property
    def ranged(self) -> Range:
        """Of a function."""
        found = bare(self.node.arguments[0]) if isinstance(self.node, Call) else None
        if not isinstance(found, Range):
            raise TypeError(f"{self.node} has no range")
        return found

    @property
    def range(self) -> int:
        """0 of a selector."""
        range_ = 0 if isinstance(self.node, Selector) else self.ranged.range
        if not isinstance(range_, int):
            raise TypeError(f"{range_} is not resolved")
        return range_

    @property
    def facts(self) -> tuple[str, ...]:
        """What is read of windows."""
        return INSTANT if self.how is None else tuple(dict.fromkeys((COUNT, *self.how.facts)))


@dataclass(frozen=True)
class Guarded:
    """`tier` is RAW where no rollup serves; `reason` is why none that is wider does, "" for the widest."""

    tier: int
    heart: Heart | None
    reason: str


def guard(expression: Expression, steps: Steps, language: Language) -> Guarded:
    """For a fragment's expression."""
    found = heart_of(expression, steps, language)
    if isinstance(found, str):
        return Guarded(RAW, None, found)
    if found.steps is None:
        return Guarded(RAW, found, "no step selects samples")
    reason = ""
    for tier in reversed(TIERS):
        misfit = _misfit(found, tier)
        if not misfit:
            return Guarded(tier, found, reason)
        reason = f"{tier_text(tier)} need {misfit} that is a multiple of {TIER_WIDTHS[tier]}"
    return Guarded(RAW, found, reason)


def heart_of(expression: Expression, steps: Steps | None, language: Language) -> Heart | str:
    """Or why windows cannot stand for it."""
    while True:
        match expression:
            case Selector(extended=extended):
                return _TEXT_OF_EXTENDED.format(extended) if extended else Heart(expression, steps, None)
            case Call(name, arguments):
                (inner,) = [one for one in arguments if _selects(one)]
                if isinstance(bare(inner), Range):
                    return _of_range(expression, bare(inner), language.functions[name], steps)
            case Subquery(inner):
                steps = None if steps is None else subquery_steps(expression, steps, language)
            case Paren(inner) | Unary(_, inner) | Aggregate(_, inner):
                pass
            case Binary(_, left, right):
                inner = right if _selects(right) else left
            case _:
                return "the query returns the samples of a range"
        expression = inner


def with_given(expression: Expression, heart: Heart) -> Expression:
    """A Given in the heart's place, whose value is the first of what is given."""
    if expression is heart.node:
        return Given(0, span=heart.node.span)
    match expression:
        case Paren(inner) | Unary(_, inner) | Subquery(inner) | Aggregate(_, inner):
            return replace(expression, inner=with_given(inner, heart))
        case Binary(_, left, right):
            return replace(expression, left=with_given(left, heart), right=with_given(right, heart))
        case Call(_, arguments):
            return replace(expression, arguments=tuple(with_given(one, heart) for one in arguments))
    return expression


def evaluated(heart: Heart, windows: Rolled, language: Language, notes: Notes, limit: Bounds) -> Vector:
    """The heart of a function at its steps. `windows` are those with samples."""
    if heart.how is None or heart.steps is None or not isinstance(heart.node, Call):
        raise TypeError(f"{heart.node} is not evaluated from windows")
    ends = looked_at(heart.ranged, heart.steps)
    given = RolledRange(windows, ends, heart.range, bare(heart.node.arguments[0]).span, notes, limit)
    vector = heart.how.evaluate(given)
    return vector if language.functions[heart.node.function].keeps_name else vector.dropping_name()


def _of_range(call: Call, ranged: Any, function: Function, steps: Steps | None) -> Heart | str:
    if ranged.selector.extended:
        return _TEXT_OF_EXTENDED.format(ranged.selector.extended)
    if function.windows is None:
        return f"{function.name} needs every sample"
    return Heart(call, steps, function.windows)


def _misfit(heart: Heart, tier: int) -> str:
    """What does not fit the windows of this tier; "" if all does."""
    if heart.range % tier:
        return "a range"
    steps = heart.steps
    if steps is None:
        raise TypeError(f"{heart.node} is evaluated at no step")
    moment = int(looked_at(heart.selector, Steps(steps.start, steps.start))[0])
    if moment % tier:
        offset = " minus offset" if heart.selector.offset else ""
        return _time_of(heart.selector, steps) + offset
    if heart.selector.at is None and len(steps) > 1 and steps.step % tier:
        return "a step"
    return ""


def _time_of(selector: Selector, steps: Steps) -> str:
    if selector.at is not None:
        return "an @ time"
    return "a start time" if len(steps) > 1 else "a time"


def _selects(expression: Expression) -> bool:
    return isinstance(bare(expression), Selector) or any(map(_selects, parts(expression)))
