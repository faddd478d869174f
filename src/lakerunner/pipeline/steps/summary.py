"""What the index is told about a segment beside its size: time range, statistics, fingerprints.

Fingerprints prune: a segment that lacks the fingerprint of `service_name` = x, or of an attribute key, holds no such
row. model/fingerprint.py says for each signal which columns' values are told. Where fingerprints would be too many to
keep, INCOMPLETE stands for all of them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from lakerunner.model.fingerprint import INCOMPLETE, MAX_FINGERPRINTS, VALUES, field_fingerprints
from lakerunner.model.signal import ATTRIBUTES, SCOPES, Scope, SignalSpec
from lakerunner.model.time import TimeRange
from lakerunner.pipeline.read.names import slices_of_names
from lakerunner.pipeline.read.rows import Coded, Numbers, Rows
from lakerunner.pipeline.steps.layout import Layout
from lakerunner.pipeline.steps.metric_names import names_in_prometheus

# Further values that prune, by their column: other names for the same rows.
FURTHER: Mapping[str, Callable[[Rows, Any], Mapping[str, list[str]]]] = {"metrics": names_in_prometheus}
MAX_VALUES = 100  # of a column, in the statistics
MAX_NAME = 256  # characters of a value in the statistics


@dataclass(frozen=True)
class Summary:
    time: TimeRange
    statistics: dict[str, Any]
    fingerprints: tuple[int, ...]


def summarize(layout: Layout, order: Any, spec: SignalSpec) -> Summary:
    """The summary of the segment that holds these rows."""
    times = layout.rows.column("timestamp", Numbers).values[order]
    words = VALUES[spec.name]
    found = {name: _values(layout.rows, name, order) for name in words}
    statistics: dict[str, Any] = {}
    told = {word: found[name] for name, word in words.items()} | {"label": sorted(_keys(layout, ATTRIBUTES))}
    for word, values in told.items():
        statistics[f"{word}s"] = [value[:MAX_NAME] for value in values[:MAX_VALUES]]
        statistics[f"{word}_count"] = len(values)
    # Whoever has this many keys of the segment, from its columns and labels, has all.
    statistics["key_count"] = sum(len(plan.present) for plan in layout.plans.values())
    if spec.name in FURTHER:
        for name, values in FURTHER[spec.name](layout.rows, order).items():
            found[name] = [*{*found[name], *values}]
    return Summary(TimeRange(int(times.min()), int(times.max()) + 1), statistics, _fingerprints(layout, found))


def _values(rows: Rows, name: str, order: Any) -> list[str]:
    """The different values of this column in these rows, sorted."""
    column = rows.column(name, Coded)
    codes = column.codes[order if column.owner is None else column.owner[order]]
    rows_of = np.bincount(codes, minlength=len(column.values))
    values: list[str] = column.values.take(pa.array(np.flatnonzero(rows_of))).to_pylist()
    return sorted(values)


def _fingerprints(layout: Layout, found: Mapping[str, list[str]]) -> tuple[int, ...]:
    """Of these values, and of the attribute keys that occur."""
    count = sum(1 + len(values) for values in found.values()) + sum(len(plan.present) for plan in layout.plans.values())
    if count > MAX_FINGERPRINTS:
        return (INCOMPLETE,)
    made = {number for name, values in found.items() for number in field_fingerprints(name, values)}
    for scope in SCOPES:
        for key in _keys(layout, scope):
            made.update(field_fingerprints(scope.prefix + key))
    return tuple(sorted(made))


def _keys(layout: Layout, scope: Scope) -> list[str]:
    """The keys of this scope's attributes that occur."""
    at, size = slices_of_names(layout.rows.attached[scope.map_column].keys)
    data = layout.rows.data
    present = layout.plans[scope].present.tolist()
    return [data[at[number] : at[number] + size[number]].tobytes().decode() for number in present]
