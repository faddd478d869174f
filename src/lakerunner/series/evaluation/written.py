"""Expressions as JSON, for workers elsewhere. What is read back is equal to what was written, but for its place in the
text: notes need it, so it stays."""

from __future__ import annotations

import math
from dataclasses import fields, is_dataclass
from typing import Any

from lakerunner.model.labels.matcher import Matcher
from lakerunner.series.expression import (
    Aggregate,
    Binary,
    Call,
    Expression,
    Kind,
    Matching,
    Number,
    Paren,
    Range,
    Selector,
    Span,
    Subquery,
    Text,
    Unary,
)

_CLASSES: dict[str, type] = {
    one.__name__: one
    for one in (Aggregate, Binary, Call, Matcher, Matching, Number, Paren, Range, Selector, Span, Subquery, Text, Unary)
}


def expression_json(expression: Expression) -> Any:
    return _written(expression)


def expression_from(given: Any) -> Expression:
    """ValueError, TypeError or KeyError if it is none."""
    read = _read(given)
    if not is_dataclass(read) or isinstance(read, Span | Matcher | Matching):
        raise ValueError(f"{type(read).__name__} is no expression")
    return read  # type: ignore[return-value]


def _written(value: Any) -> Any:
    if is_dataclass(value):
        return [type(value).__name__, *(_written(getattr(value, field.name)) for field in fields(value))]
    if isinstance(value, tuple):
        return ["", *map(_written, value)]
    if isinstance(value, float) and not math.isfinite(value):
        return {"float": repr(value)}  # JSON has no such numbers
    if isinstance(value, Kind):
        raise TypeError("a Given never travels")
    return value


def _read(value: Any) -> Any:
    if isinstance(value, dict):
        return float(value["float"])
    if not isinstance(value, list):
        return value
    name, *members = value
    read = tuple(map(_read, members))
    return _CLASSES[name](*read) if name else read
