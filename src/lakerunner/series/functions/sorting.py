"""Sort the series of an instant.

Over a range series stay sorted by labels, whatever order was requested, unless they are the same at every step: then
the order is that of one step, for operations that depend on the order.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from functools import cmp_to_key, partial

import numpy as np

from lakerunner.model.labels import Labels, value_of
from lakerunner.series.function import Function, Invocation
from lakerunner.series.functions.arguments import STRING, VECTOR, float_samples, string_of, vector_of
from lakerunner.series.values import Vector

_RANGE_WARNING = "sort is ineffective for range queries since results are always ordered by labels"
_LARGEST = str((1 << 63) - 1)
_CHUNK = re.compile(r"[0-9]+|[^0-9]+")


def _by_value(descending: bool) -> Callable[[Invocation], Vector]:
    def evaluate(invocation: Invocation) -> Vector:
        vector = vector_of(invocation)
        vector = replace(vector, present=float_samples(vector), histograms=None)
        if _is_range(invocation):
            return vector
        values = vector.values[:, 0]
        # argsort puts NaN last, which is right in both directions.
        return vector.rows(np.argsort(-values if descending else values, kind="stable"))

    return evaluate


def _by_labels(descending: bool) -> Callable[[Invocation], Vector]:
    def evaluate(invocation: Invocation) -> Vector:
        vector = vector_of(invocation)
        if _is_range(invocation):
            return vector
        names = [string_of(invocation, number) for number in range(1, len(invocation.arguments))]

        def compare(one: int, other: int) -> int:
            return compare_labels(vector.labels[one], vector.labels[other], names)

        return vector.rows(sorted(range(len(vector)), key=cmp_to_key(compare), reverse=descending))

    return evaluate


def _is_range(invocation: Invocation) -> bool:
    if invocation.evaluation.is_steady(invocation.call):
        return False
    if invocation.steps.start != invocation.steps.end:
        invocation.notes.warn(_RANGE_WARNING, invocation.call.span)
    return len(invocation.steps) > 1


def compare_labels(one: Labels, other: Labels, names: list[str]) -> int:
    """Compare by the values of these labels in turn, then by all labels."""
    for name in names:
        a, b = value_of(one, name), value_of(other, name)
        if a != b:
            return compare_naturally(a, b)
    return (one > other) - (one < other)


def compare_naturally(one: str, other: str) -> int:
    """Compare texts with adjacent digits as numbers: "2" is before "10". A prefix comes first."""
    chunks, others = _CHUNK.findall(one), _CHUNK.findall(other)
    for chunk, against in zip(chunks, others, strict=False):
        a, b = _number(chunk), _number(against)
        if a is not None and b is not None:
            if a != b:
                return -1 if a < b else 1
        elif chunk != against:
            return -1 if chunk < against else 1
    mine, its = (len(chunks), one), (len(others), other)  # 01 and 1 are the same number but not the same text
    return (mine > its) - (mine < its)


def _number(chunk: str) -> int | None:
    """Parse an integer; None if it is not one or does not fit into 64 bits, which is then compared as text."""
    if not chunk[0].isascii() or not chunk[0].isdigit():
        return None
    digits = chunk.lstrip("0") or "0"
    return int(digits) if len(digits) < 19 or (len(digits) == 19 and digits <= _LARGEST) else None


_sorter = partial(Function, returns=VECTOR, keeps_name=True, per_series=False)
SORTING = (
    _sorter("sort", (VECTOR,), evaluate=_by_value(False)),
    _sorter("sort_desc", (VECTOR,), evaluate=_by_value(True)),
    _sorter("sort_by_label", (VECTOR, STRING), evaluate=_by_labels(False), optional=-1, experimental=True),
    _sorter("sort_by_label_desc", (VECTOR, STRING), evaluate=_by_labels(True), optional=-1, experimental=True),
)
