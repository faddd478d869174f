"""EXPLAIN and EXPLAIN ANALYZE before a query: what is wanted of it, and the query itself.

What always holds: every character of the query stands where it stood in the user's text, so that positions in errors
are those of what the user wrote. The words taken off leave blanks.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from lakerunner.plan.explain import Explain

SPACE = r"(?:\s|--[^\n]*(?:\n|$)|/\*(?s:.*?)\*/)"
_PREFIX = re.compile(rf"({SPACE}*)EXPLAIN\b(?:({SPACE}+)ANALYZE\b)?", re.IGNORECASE)
_WORDS = {"explain": " " * len("explain"), "analyze": " " * len("analyze")}


@dataclass(frozen=True)
class Statement:
    query: str
    explain: Explain


def read_statement(text: str) -> Statement:
    """Anything but these words at the beginning is the query's own to be refused for."""
    found = _PREFIX.match(text)
    if not found:
        return Statement(text, Explain.NO)
    before, between = found[1], found[2]
    if between is None:
        return Statement(before + _WORDS["explain"] + text[found.end() :], Explain.PLAN)
    blank = before + _WORDS["explain"] + between + _WORDS["analyze"]
    return Statement(blank + text[found.end() :], Explain.ANALYZE)
