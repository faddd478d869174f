"""Differences from Loki 3.7 that are meant, each with its reason, described as narrowly as possible."""

from __future__ import annotations

from fuzz.logql.compare import Ours
from fuzz.logql.grammar import LogqlQuery

NO_ANSWER = "no answer in time"
_MATCHING = ("many-to-many matching not allowed", "many-to-one matching must be explicit", "must ensure unique matches")


def excuse(query: LogqlQuery, ours: Ours, theirs: Ours) -> str | None:
    """Return why answers differ; None if they should not."""
    if theirs.error == NO_ANSWER:
        return "Loki gave no answer in time"
    if "approx_topk" in query.text and "approx_topk" in theirs.error:
        return "Loki answers approx_topk only with another engine"
    if not ours.error and any(words in theirs.error for words in _MATCHING):
        return "Loki refuses series of one match group also where the other side is empty (docs/formats/logql.md)"
    if "rate_counter" in query.text:
        return "rate_counter extrapolates since Loki's main branch of August 2026"
    return None
