"""Differences from Loki 3.7 that are meant, each with its reason, described as narrowly as possible."""

from __future__ import annotations

from fuzz.logql.compare import SCALAR, Ours
from fuzz.logql.grammar import LogqlQuery

NO_ANSWER = "no answer in time"
_CHOOSING = ("topk", "bottomk")
_MATCHING = ("many-to-many matching not allowed", "many-to-one matching must be explicit", "must ensure unique matches")


def excuse(query: LogqlQuery, ours: Ours, theirs: Ours) -> str | None:
    """Return why answers differ; None if they should not."""
    if theirs.error == NO_ANSWER:
        return "Loki gave no answer in time"
    if "approx_topk" in query.text and "approx_topk" in theirs.error:
        return "Loki answers approx_topk only with another engine"
    if query.step == 0 and _scalars(ours) and _scalars(ours) == _scalars(theirs):
        return "Loki shows a wrong time for a scalar at an instant"
    if "without" in query.text and _not_empty(ours) == _not_empty(theirs) != set():
        return "Loki removes labels with an empty value from the series of `without`, after it has grouped by them"
    if any(op in query.text for op in _CHOOSING) and _values(ours) == _values(theirs) != []:
        return "which of several equal series topk and bottomk take is open"
    if ours.lines and theirs.lines and len(theirs.lines) < len(ours.lines) and set(ours.lines) == set(theirs.lines):
        return "Loki returns one of several lines of a time that stages have made equal"
    if not ours.error and any(words in theirs.error for words in _MATCHING):
        return "Loki refuses series of one match group also where the other side is empty (docs/formats/logql.md)"
    if "rate_counter" in query.text:
        return "rate_counter extrapolates since Loki's main branch of August 2026"
    return None


def _scalars(answer: Ours) -> list[str]:
    return [value for labels, points in answer.series or () if labels == SCALAR for _, value in points]


def _values(answer: Ours) -> list[str]:
    return sorted(value for _, points in answer.series or () for _, value in points)


def _not_empty(answer: Ours) -> set[tuple[object, ...]]:
    """Return the series without labels that have no value."""
    return {(tuple(one for one in labels if one[1]), points) for labels, points in answer.series or ()}
