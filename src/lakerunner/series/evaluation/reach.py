"""Which samples an expression looks at: a function of the tree and its steps.

Comes in: an expression whose durations and times are numbers. Goes out: for each selector its matchers and the time
that all steps together look at. What always holds: the evaluator asks for nothing else (series/evaluation/evaluate.py),
but for what a lazy function selects by the values that it finds.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from lakerunner.model.labels.matcher import Matcher
from lakerunner.series.evaluation.evaluate import subquery_steps
from lakerunner.series.expression import Call, Expression, Range, Selector, Subquery, parts
from lakerunner.series.language import Language
from lakerunner.series.values import Steps


@dataclass(frozen=True)
class Reach:
    """Samples with start < time <= end of the series that meet the matchers."""

    matchers: tuple[Matcher, ...]
    start: int
    end: int


def reaches(expression: Expression, steps: Steps, lookback: int, language: Language) -> Iterator[Reach]:
    """Give the reach of each selector; none for one that no step looks at, as inside a subquery between two of its own
    steps."""
    match expression:
        case Selector():
            _, behind = language.reach(expression, lookback)
            yield _reach(expression, steps, lookback, behind)
        case Range(selector, range_):
            if not isinstance(range_, int):
                raise TypeError(f"{range_} is not resolved")
            before, behind = language.reach(selector, lookback)
            yield _reach(selector, steps, range_ + before, behind)
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
    """Arrays of steps are not made: a subquery may have more than memory holds, and is refused when it is evaluated."""
    first, last = (steps.start, steps.last) if selector.at is None else (selector.at, selector.at)
    if not (isinstance(first, int) and isinstance(last, int) and isinstance(selector.offset, int)):
        raise TypeError(f"{selector} is not resolved")
    return Reach(selector.matchers, first - selector.offset - before, last - selector.offset + behind)
