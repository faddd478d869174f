"""What the index is told about a segment beside its size: time range, statistics, fingerprints.

Fingerprints prune: a segment that lacks the fingerprint of `service_name` = x, or of an attribute key, holds no such
row. Where they would be too many to keep, INCOMPLETE stands for all of them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from lakerunner.model.fingerprint import INCOMPLETE, field_fingerprints
from lakerunner.model.time import TimeRange
from lakerunner.pipeline.read.names import slices_of_names
from lakerunner.pipeline.read.rows import Coded, Numbers, Rows
from lakerunner.pipeline.steps.layout import Layout

MAX_SERVICES = 100
MAX_NAME = 256  # characters of a service's name in the statistics
MAX_FINGERPRINTS = 2000


@dataclass(frozen=True)
class Summary:
    time: TimeRange
    statistics: dict[str, Any]
    fingerprints: tuple[int, ...]


def summarize(layout: Layout, order: Any) -> Summary:
    """The summary of the segment that holds these rows."""
    times = layout.rows.column("timestamp", Numbers).values[order]
    services = _services(layout.rows, order)
    shown = [service[:MAX_NAME] for service in services[:MAX_SERVICES]]
    return Summary(
        TimeRange(int(times.min()), int(times.max()) + 1),
        {"services": shown, "service_count": len(services)},
        _fingerprints(layout, services),
    )


def _services(rows: Rows, order: Any) -> list[str]:
    """The names of the services in these rows, sorted."""
    column = rows.column("service_name", Coded)
    rows_of = np.bincount(column.codes[column.owner[order]], minlength=len(column.values))
    names: list[str] = column.values.take(pa.array(np.flatnonzero(rows_of))).to_pylist()
    return sorted(names)


def _fingerprints(layout: Layout, services: list[str]) -> tuple[int, ...]:
    """Of the services, and of the attribute keys that occur."""
    count = 1 + len(services) + sum(len(plan.present) for plan in layout.plans.values())
    if count > MAX_FINGERPRINTS:
        return (INCOMPLETE,)
    found = set(field_fingerprints("service_name", services))
    data = layout.rows.data
    for scope, plan in layout.plans.items():
        at, size = slices_of_names(layout.rows.attached[scope.map_column].keys)
        for number in plan.present.tolist():
            key = data[at[number] : at[number] + size[number]].tobytes().decode()
            found.update(field_fingerprints(scope.prefix + key))
    return tuple(sorted(found))
