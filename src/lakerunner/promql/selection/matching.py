"""Whether a matcher is met by a value."""

from __future__ import annotations

from lakerunner.plan.regex import compiled
from lakerunner.series.expression import Matcher


def matches(matcher: Matcher, value: str) -> bool:
    if matcher.op in ("=", "!="):
        return (matcher.value == value) == (matcher.op == "=")
    return compiled(matcher.value).matches(value) == (matcher.op == "=~")


def matches_empty(matcher: Matcher) -> bool:
    """Whether it is met by a series without that label."""
    return matches(matcher, "")
