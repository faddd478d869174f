"""Decide which tier of rollups gives the same answer as samples (docs/formats/tiers.md).

Comes in: a fragment (series/evaluation/fragments.py) and its steps. Goes out: its rollup candidate, the only node that
looks at samples, and the widest buckets from which it can be computed, or why there are none. What always holds: for
the tier returned, every time that a step looks at and every beginning of a range is the end of a bucket, so that each
bucket lies either inside a range or outside it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from lakerunner.model.tier import RAW, TIER_WIDTHS, TIERS, tier_text
from lakerunner.series.bounds import Bounds
from lakerunner.series.evaluation.evaluate import evaluation_times, subquery_steps
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
    resolved,
    selects,
    with_parts,
)
from lakerunner.series.function import Function
from lakerunner.series.language import Language
from lakerunner.series.notes import Notes
from lakerunner.series.rollups import COUNT, INSTANT, FromBuckets, RollupRange, RollupSeries
from lakerunner.series.values import Steps, Vector

_TEXT_OF_EXTENDED = "{} looks at samples outside its range"


@dataclass(frozen=True)
class RollupCandidate:
    """The innermost part of a fragment: a selector, or a function of a range of one. `steps` are those at which it is
    evaluated, None if there are none; `how` is None for a selector."""

    node: Selector | Call
    steps: Steps | None
    how: FromBuckets | None

    @property
    def selector(self) -> Selector:
        return self.node if isinstance(self.node, Selector) else self.ranged.selector

    @property
    def ranged(self) -> Range:
        """Return the range that a function takes."""
        found = bare(self.node.arguments[0]) if isinstance(self.node, Call) else None
        if not isinstance(found, Range):
            raise TypeError(f"{self.node} has no range")
        return found

    @property
    def range(self) -> int:
        """Return the length of the range, 0 for a selector."""
        return 0 if isinstance(self.node, Selector) else resolved(self.ranged.range)

    @property
    def facts(self) -> tuple[str, ...]:
        """Return the facts of buckets that are read."""
        return INSTANT if self.how is None else tuple(dict.fromkeys((COUNT, *self.how.facts)))


@dataclass(frozen=True)
class TierChoice:
    """The decision. `tier` is RAW if no rollup serves; `reason` says why no wider tier does, "" for the widest."""

    tier: int
    candidate: RollupCandidate | None
    reason: str


def choose_tier(expression: Expression, steps: Steps, language: Language) -> TierChoice:
    """Find the widest tier that serves a fragment's expression."""
    found = find_candidate(expression, steps, language)
    if isinstance(found, str):
        return TierChoice(RAW, None, found)
    if found.steps is None:
        return TierChoice(RAW, found, "no step selects samples")
    reason = ""
    for tier in reversed(TIERS):
        misfit = _misfit(found, tier)
        if not misfit:
            return TierChoice(tier, found, reason)
        reason = f"{tier_text(tier)} need {misfit} that is a multiple of {TIER_WIDTHS[tier]}"
    return TierChoice(RAW, found, reason)


def find_candidate(expression: Expression, steps: Steps | None, language: Language) -> RollupCandidate | str:
    """Return the rollup candidate of an expression, or the reason why rollups cannot serve it."""
    while True:
        match expression:
            case Selector(extended=extended):
                return _TEXT_OF_EXTENDED.format(extended) if extended else RollupCandidate(expression, steps, None)
            case Call(name, arguments):
                (inner,) = [one for one in arguments if selects(one)]
                if isinstance(bare(inner), Range):
                    return _of_range(expression, bare(inner), language.functions[name], steps)
            case Subquery(inner):
                steps = None if steps is None else subquery_steps(expression, steps, language)
            case Paren(inner) | Unary(_, inner) | Aggregate(_, inner):
                pass
            case Binary(_, left, right):
                inner = right if selects(right) else left
            case _:
                return "the query returns the samples of a range"
        expression = inner


def with_given(expression: Expression, candidate: RollupCandidate) -> Expression:
    """Replace the candidate by a Given with number 0."""
    if expression is candidate.node:
        return Given(0, span=candidate.node.span)
    return with_parts(expression, lambda one: with_given(one, candidate))


def evaluate_candidate(
    candidate: RollupCandidate, windows: RollupSeries, language: Language, notes: Notes, limit: Bounds
) -> Vector:
    """Evaluate a function at its steps. `windows` are the buckets that have samples."""
    if candidate.how is None or candidate.steps is None or not isinstance(candidate.node, Call):
        raise TypeError(f"{candidate.node} is not evaluate_candidate from windows")
    ends = evaluation_times(candidate.ranged, candidate.steps)
    given = RollupRange(windows, ends, candidate.range, bare(candidate.node.arguments[0]).span, notes, limit)
    vector = candidate.how.evaluate(given)
    return vector if language.functions[candidate.node.function].keeps_name else vector.dropping_name()


def _of_range(call: Call, ranged: Any, function: Function, steps: Steps | None) -> RollupCandidate | str:
    if ranged.selector.extended:
        return _TEXT_OF_EXTENDED.format(ranged.selector.extended)
    if function.from_buckets is None:
        return f"{function.name} needs every sample"
    return RollupCandidate(call, steps, function.from_buckets)


def _misfit(candidate: RollupCandidate, tier: int) -> str:
    """Return why the buckets of this tier do not fit, "" if they do."""
    if candidate.range % tier:
        return "a range"
    steps = candidate.steps
    if steps is None:
        raise TypeError(f"{candidate.node} is evaluate_candidate at no step")
    moment = int(evaluation_times(candidate.selector, Steps(steps.start, steps.start))[0])
    if moment % tier:
        offset = " minus offset" if candidate.selector.offset else ""
        return _time_of(candidate.selector, steps) + offset
    if candidate.selector.at is None and len(steps) > 1 and steps.step % tier:
        return "a step"
    return ""


def _time_of(selector: Selector, steps: Steps) -> str:
    if selector.at is not None:
        return "an @ time"
    return "a start time" if len(steps) > 1 else "a time"
