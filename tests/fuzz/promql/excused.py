"""Where Prometheus 3.15 is wrong: what makes a difference to it none of ours. Each is as narrow as it can be told."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from fuzz.promql import words
from fuzz.promql.grammar import Query
from lakerunner.model.errors import UserError
from lakerunner.plan.vectors.expression import (
    Aggregate,
    Binary,
    Call,
    Expression,
    Selector,
    Subquery,
    Unary,
    bare,
    parts,
)
from lakerunner.plan.vectors.steady import is_steady
from lakerunner.promql.parse import parse
from lakerunner.promql.resolve import resolve


def excuse(query: Query, ours: Mapping[str, Any], theirs: Mapping[str, Any]) -> str | None:
    """Why a difference is none of ours; None: it is."""
    if "same labelset" in ours.get("error", "") and theirs["status"] == "success" and _has_both(theirs["data"]):
        return "series that came to have the same labels become one with a number and a histogram at the same time"
    try:
        expression = resolve(parse(query.text), query.steps, query.instant)
    except UserError:
        return None
    if any(isinstance(one, Call) and _adds_anew(one) for one in _nodes(expression)) and "latency" in query.text:
        return "of several quantiles of a classic histogram each adds up anew the bounds that are there twice"
    reasons = (reason for node in _nodes(expression) for reason in [_of_node(node)] if reason)
    return next(reasons, None)


def _has_both(data: Mapping[str, Any]) -> bool:
    def times(series: Mapping[str, Any], name: str) -> set[float]:
        return {time for time, _ in series.get(name, ())}

    return data["resultType"] == "matrix" and any(
        times(series, "values") & times(series, "histograms") for series in data["result"]
    )


def _may_be_histograms(node: Expression) -> bool:
    return isinstance(node, Selector) and node.name in ("", *words.HISTOGRAMS)


def _adds_anew(call: Call) -> bool:
    return call.function == "histogram_quantiles" and len(call.arguments) > 3


def _of_node(node: Expression) -> str | None:
    match node:
        case Call("timestamp" | "start_timestamp", (of,)):
            selector = bare(of)
            if isinstance(selector, Selector) and selector.at is not None and selector.offset != 0:
                return "timestamp() of a selector with @ forgets its offset"
        case Call("histogram_quantile" | "histogram_quantiles" | "histogram_fraction"):
            if any(isinstance(one, Unary) or (isinstance(one, Binary) and one.op in "-*/") for one in _nodes(node)):
                return "counts below zero have no rank: what comes of them depends on what empty buckets a chunk has"
        case Call("changes", (of,)) if any(_may_be_histograms(one) for one in _nodes(of)):
            return "a histogram that a new chunk tells by other empty buckets counts as changed"
        case Subquery() if isinstance(node.offset, int) and node.offset < 0:
            if any(isinstance(one, Selector) and one.at is not None for one in _nodes(node.inner)):
                return "@ inside a subquery that looks ahead is off, where it begins with the query"
        case Aggregate(_, inner, parameter) if parameter is not None:
            if is_steady(inner) and not is_steady(parameter):
                return "a parameter is taken at the first step alone where the vector is the same at every step"
    return None


def _nodes(expression: Expression) -> Iterator[Expression]:
    yield expression
    for part in parts(expression):
        yield from _nodes(part)
