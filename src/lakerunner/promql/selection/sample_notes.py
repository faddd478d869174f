"""Notes on samples that do not fit what a function does with them, in Prometheus' words."""

from __future__ import annotations

import json
import math
from decimal import Decimal
from typing import Literal

from lakerunner.model.labels import NAME, TYPE, Labels, value_of
from lakerunner.series.expression import Span
from lakerunner.series.notes import Notes

_COUNTER_NAMES = ("_total", "_sum", "_count", "_bucket")
_COUNTER_TYPES = ("counter", "histogram")
Operation = Literal["addition", "subtraction", "aggregation"]


def mixed_samples(notes: Notes, name: str, span: Span) -> None:
    notes.warn(f"encountered a mix of histograms and floats for metric name {_quoted(name)}", span)


def mixed_schemas(notes: Notes, name: str, span: Span) -> None:
    notes.warn(
        "vector contains a mix of histograms with exponential and custom buckets schemas"
        f" for metric name {_quoted(name)}",
        span,
    )


def histograms_ignored(notes: Notes, name: str, span: Span) -> None:
    notes.inform(
        f"ignored histograms in a range containing both floats and histograms for metric name {_quoted(name)}", span
    )


def not_a_counter(notes: Notes, name: str, span: Span) -> None:
    notes.warn(f"this native histogram metric is not a counter: {_quoted(name)}", span)


def not_a_gauge(notes: Notes, name: str, span: Span) -> None:
    notes.warn(f"this native histogram metric is not a gauge: {_quoted(name)}", span)


def bounds_reconciled(notes: Notes, operation: Operation, span: Span) -> None:
    notes.inform(f"mismatched custom buckets were reconciled during {operation}", span)


def resets_collide(notes: Notes, operation: Operation, span: Span) -> None:
    notes.warn(f"conflicting counter resets during histogram {operation}", span)


def starts_overlap(notes: Notes, name: str, span: Span) -> None:
    notes.warn(f"sample has start time that overlaps with previous sample timestamp for metric {_quoted(name)}", span)


def invalid_quantile(notes: Notes, quantile: float, span: Span) -> None:
    notes.warn(f"quantile value should be between 0 and 1, got {shortest(quantile)}", span)


def perhaps_no_counter(notes: Notes, labels: Labels, span: Span) -> None:
    """A series that says what it is (`__type__`) is judged by that, the others by their names."""
    name, kind = value_of(labels, NAME), value_of(labels, TYPE)
    if not name:
        return
    if kind and kind not in _COUNTER_TYPES:
        notes.inform(
            'metric might not be a counter, __type__ label is not set to "counter" or "histogram",'
            f" got {_quoted(kind)}: {_quoted(name)}",
            span,
        )
    if not kind and not name.endswith(_COUNTER_NAMES):
        notes.inform(
            "metric might not be a counter, name does not end in _total/_sum/_count/_bucket: " + _quoted(name), span
        )


def shortest(number: float) -> str:
    """The fewest digits that mean this number, with an exponent from a million on and below a ten-thousandth."""
    if math.isnan(number):
        return "NaN"
    if math.isinf(number):
        return "+Inf" if number > 0 else "-Inf"
    exact = Decimal(repr(float(number))).normalize()
    exponent = exact.adjusted()
    if -4 <= exponent < 6:
        return f"{exact:f}"
    sign, digits, _ = exact.as_tuple()
    first, *rest = map(str, digits)
    return f"{'-' * sign}{first}{'.' if rest else ''}{''.join(rest)}e{exponent:+03d}"


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)
