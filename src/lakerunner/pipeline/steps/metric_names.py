"""The names by which Prometheus knows the metrics of some rows, worked out once for each different metric."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakerunner.model.prometheus import METADATA_ENTRY, escaped_metric_name, escaped_own_name, metric_name
from lakerunner.pipeline.read.rows import Coded, Numbers, Rows


def first_rows(rows: Rows, order: Any) -> Any:
    """Where in this order, in which points of one series are neighbours, each series starts."""
    series = rows.column("series", Numbers).values[order]
    return np.append(0, np.flatnonzero(series[1:] != series[:-1]) + 1)


def names_in_prometheus(rows: Rows, order: Any) -> dict[str, list[str]]:
    """All names of the metrics of these rows, in UTF-8 form and in escaped form."""
    named = prometheus_names(rows, order[first_rows(rows, order)])
    return {"metric_name": [*{name for names in named for name in names.unique().to_pylist() if name is not None}]}


def prometheus_names(rows: Rows, chosen: Any) -> tuple[pa.Array, pa.Array]:
    """The names of these rows' metrics in UTF-8 form and in escaped form; null where there is no escaped one, and both
    for what is no metric."""
    if rows.prometheus:
        return _own_names(rows, chosen)
    columns = [rows.column(name, Coded) for name in ("metric_name", "unit", "metric_type")]
    codes = [_codes(column, chosen) for column in columns]
    codes.append(_is_monotonic(rows, chosen))
    combined = np.zeros(len(chosen), np.int64)
    for code in codes:
        combined = combined * (int(code.max(initial=0)) + 1) + code
    _, example, place = np.unique(combined, return_index=True, return_inverse=True)
    metrics = [
        (*(column.values[int(code[row])].as_py() for column, code in zip(columns, codes, strict=False)), codes[-1][row])
        for row in example.tolist()
    ]
    names = [metric_name(*metric[:3], monotonic=bool(metric[3])) for metric in metrics]
    escaped = [escaped_metric_name(*metric[:3], monotonic=bool(metric[3])) for metric in metrics]
    rows_of = pa.array(place)
    return pa.array(names, pa.string()).take(rows_of), pa.array(escaped, pa.string()).take(rows_of)


def _own_names(rows: Rows, chosen: Any) -> tuple[pa.Array, pa.Array]:
    """The names as Prometheus sent them."""
    names, types = (rows.column(name, Coded) for name in ("metric_name", "metric_type"))
    is_entry = pc.equal(types.values, METADATA_ENTRY).to_numpy(zero_copy_only=False)
    codes = pa.array(_codes(names, chosen), mask=is_entry[_codes(types, chosen)])
    escaped = pa.array([escaped_own_name(name) for name in names.values.to_pylist()], pa.string())
    return names.values.take(codes), escaped.take(codes)


def _codes(column: Coded, chosen: Any) -> Any:
    return column.codes[chosen if column.owner is None else column.owner[chosen]]


def _is_monotonic(rows: Rows, chosen: Any) -> Any:
    if "monotonic" not in rows.columns:
        return np.zeros(len(chosen), np.int64)
    column = rows.column("monotonic", Numbers)
    said = column.values if column.valid is None else column.values & column.valid
    return said[chosen if column.owner is None else column.owner[chosen]].astype(np.int64)
