"""Differences caused by bugs of Prometheus 3.15. Each is described as narrowly as possible."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from fuzz.promql import words
from fuzz.promql.grammar import Query
from lakerunner.model.errors import UserError
from lakerunner.promql.functions import FUNCTIONS
from lakerunner.promql.parse import parse
from lakerunner.promql.resolve import resolve
from lakerunner.series.expression import (
    Aggregate,
    Binary,
    Call,
    Expression,
    Selector,
    Subquery,
    Text,
    Unary,
    Unresolved,
    bare,
    parts,
)
from lakerunner.series.function import is_steady

_NAMED = re.compile(r"(?<=: )\[.*\];")


def excuse(query: Query, ours: Mapping[str, Any], theirs: Mapping[str, Any]) -> str | None:
    """Return why a difference is not our fault; None if it is."""
    if "same labelset" in ours.get("error", "") and theirs["status"] == "success" and _has_both(theirs["data"]):
        return "series that came to have the same labels become one with a number and a histogram at the same time"
    try:
        parsed = parse(query.text)
        expression = resolve(parsed, query.steps, query.instant)
    except UserError:
        return None
    if not query.instant and any(map(_parameter_at_an_end, _nodes(parsed))):
        return "@ start() and @ end() are passed over in the parameter of an aggregation"
    if any(isinstance(one, Call) and _adds_anew(one) for one in _nodes(expression)) and "latency" in query.text:
        return "of several quantiles of a classic histogram each adds up anew the bounds that are there twice"
    if _names_others(query, ours, theirs) and any(_pairs_kept_in_a_map(one) for one in _nodes(expression)):
        return "which of several series of a match group an error names: a range's are kept in a map between operations"
    if "same labelset" in ours.get("error", "") and _hides_both(theirs) and any(map(_relabels, _nodes(expression))):
        return "series that came to have the same labels become one with a number and a histogram, in what is not shown"
    if any(_takes_first_by_label(one, ours, theirs) for one in _nodes(expression)):
        return "sort_by_label has no order for series without the label beside such with it; limitk takes the first"
    reasons = (reason for node in _nodes(expression) for reason in [_of_node(node)] if reason)
    return next(reasons, None)


def _has_both(data: Mapping[str, Any]) -> bool:
    def times(series: Mapping[str, Any], name: str) -> set[float]:
        return {time for time, _ in series.get(name, ())}

    return data["resultType"] == "matrix" and any(
        times(series, "values") & times(series, "histograms") for series in data["result"]
    )


def _hides_both(theirs: Mapping[str, Any]) -> bool:
    """Prometheus counts the samples of what is the same at every step again, and finds too many; at an instant it keeps
    one of the two without an error."""
    return theirs.get("error") == "unexpected number of samples" or theirs["status"] == "success"


def _relabels(node: Expression) -> bool:
    """Return whether series that may have histograms get other labels."""
    return (
        isinstance(node, Call)
        and node.function in ("label_replace", "label_join")
        and any(_may_be_histograms(one) for one in _nodes(node))
    )


def _takes_first_by_label(node: Expression, ours: Mapping[str, Any], theirs: Mapping[str, Any]) -> bool:
    """Return whether either side took series both with and without a label that is sorted by."""
    if not (isinstance(node, Aggregate) and node.op == "limitk"):
        return False
    call = bare(node.inner)
    if not (isinstance(call, Call) and call.function.startswith("sort_by_label")):
        return False
    taken = [series["metric"] for one in (ours, theirs) for series in one.get("data", {}).get("result", ())]
    names = [one.value for one in call.arguments[1:] if isinstance(one, Text)]
    return any(len({name in labels for labels in taken}) == 2 for name in names)


def _names_others(query: Query, ours: Mapping[str, Any], theirs: Mapping[str, Any]) -> bool:
    """Return whether both found several series of one match group of a range, and named different ones."""
    told = {_NAMED.sub("", one.get("error", "")) for one in (ours, theirs)}
    return not query.instant and len(told) == 1 and "found duplicate series for the match group" in told.pop()


def _pairs_kept_in_a_map(node: Expression) -> bool:
    """Return whether it is a binary operation on the result of another one or of an aggregation."""
    return isinstance(node, Binary) and any(
        isinstance(one, Binary | Aggregate) for side in (node.left, node.right) for one in _nodes(side)
    )


def _may_be_histograms(node: Expression) -> bool:
    return isinstance(node, Selector) and node.name in ("", *words.HISTOGRAMS)


def _parameter_at_an_end(node: Expression) -> bool:
    return (
        isinstance(node, Aggregate)
        and node.parameter is not None
        and any(
            isinstance(one, Selector | Subquery) and isinstance(one.at, Unresolved) for one in _nodes(node.parameter)
        )
    )


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
            if is_steady(inner, FUNCTIONS) and not is_steady(parameter, FUNCTIONS):
                return "a parameter is taken at the first step alone where the vector is the same at every step"
    return None


def _nodes(expression: Expression) -> Iterator[Expression]:
    yield expression
    for part in parts(expression):
        yield from _nodes(part)
