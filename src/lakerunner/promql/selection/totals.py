"""Native histograms without their buckets, where an expression asks for counts and sums alone: of
`histogram_count(rate(h[5m]))` no bucket is ever looked at.

Comes in: an expression, and the samples of its selectors. Whether counting began anew can only be told from buckets, so
that is found out before they go, and said by the reset hint of each sample but the first.
"""

from __future__ import annotations

from dataclasses import replace

from lakerunner.promql.selection.staleness import stale_markers
from lakerunner.series.expression import (
    Aggregate,
    Binary,
    Call,
    Expression,
    Paren,
    Range,
    Selector,
    Unary,
)
from lakerunner.series.histograms.arithmetic import detect_reset
from lakerunner.series.histograms.histogram import Histogram, ResetHint
from lakerunner.series.values import Samples

_ASK_FOR_TOTALS = frozenset({"histogram_count", "histogram_sum", "histogram_avg"})
_ASK_FOR_BUCKETS = frozenset(
    {"histogram_quantile", "histogram_quantiles", "histogram_fraction", "histogram_stddev", "histogram_stdvar"}
)


def with_totals_marked(expression: Expression, asked: bool = False) -> Expression:
    """Selectors of which a function around them wants no more than totals, and nothing around them buckets, say so.
    The samples of a subquery are not next to each other, so resets must be found among them again: it wants buckets."""
    match expression:
        case Call(function, arguments) if function not in _ASK_FOR_BUCKETS:
            asked = asked or function in _ASK_FOR_TOTALS
            return replace(expression, arguments=tuple(with_totals_marked(one, asked) for one in arguments))
        case Paren(inner) | Unary(_, inner):
            return replace(expression, inner=with_totals_marked(inner, asked))
        case Binary(op, left, right) if op not in ("</", ">/"):
            return replace(expression, left=with_totals_marked(left, asked), right=with_totals_marked(right, asked))
        case Aggregate(_, inner, parameter):
            settled = None if parameter is None else with_totals_marked(parameter, asked)
            return replace(expression, inner=with_totals_marked(inner, asked), parameter=settled)
        case Range(selector):
            return replace(expression, selector=replace(selector, totals_only=asked))
        case Selector():
            return replace(expression, totals_only=asked)
    return expression


def totals_only(samples: Samples) -> Samples:
    if samples.histograms is None:
        return samples
    found, stale = samples.histograms.copy(), stale_markers(samples)
    for first, last in zip(samples.offsets[:-1].tolist(), samples.offsets[1:].tolist(), strict=True):
        before: Histogram | None = None
        for place in range(first, last):
            here = samples.histograms[place]
            if here is None or stale[place]:
                continue
            hint = here.reset_hint
            if hint == ResetHint.UNKNOWN and before is not None:
                hint = ResetHint.RESET if detect_reset(here, before) else ResetHint.NOT_RESET
            before = here
            found[place] = Histogram(here.schema, here.count, here.sum, reset_hint=hint)
    return replace(samples, histograms=found)
