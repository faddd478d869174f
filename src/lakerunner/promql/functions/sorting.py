"""The order of the series at one instant. Over a range series are in the order of their labels, whatever was asked,
unless they are the same at every step: then the order is that of one of them, for what takes series in their order."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from functools import cmp_to_key

import numpy as np

from lakerunner.model.labels import Labels, value_of
from lakerunner.promql.functions.arguments import STRING, VECTOR, float_samples, string_of, vector_of
from lakerunner.series.function import Called, Function
from lakerunner.series.values import Vector

_RANGE_WARNING = "sort is ineffective for range queries since results are always ordered by labels"
_LARGEST = str((1 << 63) - 1)
_CHUNK = re.compile(r"[0-9]+|[^0-9]+")


def _by_value(descending: bool) -> Callable[[Called], Vector]:
    def evaluate(called: Called) -> Vector:
        vector = vector_of(called)
        vector = replace(vector, present=float_samples(vector), histograms=None)
        if _is_range(called):
            return vector
        values = vector.values[:, 0]
        # NaN is last either way, which is where argsort puts it.
        return vector.rows(np.argsort(-values if descending else values, kind="stable"))

    return evaluate


def _by_labels(descending: bool) -> Callable[[Called], Vector]:
    def evaluate(called: Called) -> Vector:
        vector = vector_of(called)
        if _is_range(called):
            return vector
        names = [string_of(called, number) for number in range(1, len(called.arguments))]

        def compare(one: int, other: int) -> int:
            return compare_labels(vector.labels[one], vector.labels[other], names)

        return vector.rows(sorted(range(len(vector)), key=cmp_to_key(compare), reverse=descending))

    return evaluate


def _is_range(called: Called) -> bool:
    if called.evaluation.is_steady(called.call):
        return False
    if called.steps.start != called.steps.end:
        called.notes.warn(_RANGE_WARNING, called.call.span)
    return len(called.steps) > 1


def compare_labels(one: Labels, other: Labels, names: list[str]) -> int:
    """By the values of these labels in turn, and by all labels where they are the same."""
    for name in names:
        a, b = value_of(one, name), value_of(other, name)
        if a != b:
            return compare_naturally(a, b)
    return (one > other) - (one < other)


def compare_naturally(one: str, other: str) -> int:
    """Digits that stand together are a number: "2" is before "10". A text is before what it begins."""
    chunks, others = _CHUNK.findall(one), _CHUNK.findall(other)
    for chunk, against in zip(chunks, others, strict=False):
        a, b = _number(chunk), _number(against)
        if a is not None and b is not None:
            if a != b:
                return -1 if a < b else 1
        elif chunk != against:
            return -1 if chunk < against else 1
    mine, its = (len(chunks), one), (len(others), other)  # 01 and 1 are the same number, not the same text
    return (mine > its) - (mine < its)


def _number(chunk: str) -> int | None:
    """None: not one, or none that fits into 64 bits, which is compared as text."""
    if not chunk[0].isascii() or not chunk[0].isdigit():
        return None
    digits = chunk.lstrip("0") or "0"
    return int(digits) if len(digits) < 19 or (len(digits) == 19 and digits <= _LARGEST) else None


SORTING = (
    Function("sort", (VECTOR,), VECTOR, _by_value(False), keeps_name=True, per_series=False),
    Function("sort_desc", (VECTOR,), VECTOR, _by_value(True), keeps_name=True, per_series=False),
    Function(
        "sort_by_label",
        (VECTOR, STRING),
        VECTOR,
        _by_labels(False),
        -1,
        keeps_name=True,
        per_series=False,
        experimental=True,
    ),
    Function(
        "sort_by_label_desc",
        (VECTOR, STRING),
        VECTOR,
        _by_labels(True),
        -1,
        keeps_name=True,
        per_series=False,
        experimental=True,
    ),
)
