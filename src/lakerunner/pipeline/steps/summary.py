"""What the index is told about a segment beside its size: time range, statistics, fingerprints.

Fingerprints prune: a segment that lacks the fingerprint of `service_name` = x, or of an attribute key, holds no such
row. `VALUES` says for each signal which columns' values are told. Where fingerprints would be too many to keep,
INCOMPLETE stands for all of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from lakerunner.model.fingerprint import INCOMPLETE, field_fingerprints
from lakerunner.model.signal import SignalSpec
from lakerunner.model.time import TimeRange
from lakerunner.pipeline.read.names import slices_of_names
from lakerunner.pipeline.read.rows import Coded, Numbers, Rows
from lakerunner.pipeline.steps.layout import Layout

# The columns whose values prune, and the word that the statistics have for one of them.
VALUES: Mapping[str, Mapping[str, str]] = {
    "logs": {"service_name": "service"},
    "traces": {"service_name": "service", "name": "name"},
}
MAX_VALUES = 100  # of a column, in the statistics
MAX_NAME = 256  # characters of a value in the statistics
MAX_FINGERPRINTS = 2000


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
    for name, word in words.items():
        statistics[f"{word}s"] = [value[:MAX_NAME] for value in found[name][:MAX_VALUES]]
        statistics[f"{word}_count"] = len(found[name])
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
    data = layout.rows.data
    for scope, plan in layout.plans.items():
        at, size = slices_of_names(layout.rows.attached[scope.map_column].keys)
        for number in plan.present.tolist():
            key = data[at[number] : at[number] + size[number]].tobytes().decode()
            made.update(field_fingerprints(scope.prefix + key))
    return tuple(sorted(made))
