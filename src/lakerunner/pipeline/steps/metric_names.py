"""The names by which Prometheus knows the metrics of some rows, worked out once for each different metric."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakerunner.model.prometheus import METADATA_ENTRY, escaped_metric_name, escaped_own_name, metric_name
from lakerunner.pipeline.read.rows import Coded, Numbers, Rows
from lakerunner.pipeline.steps.take import coded_texts


def first_rows(rows: Rows, order: Any) -> Any:
    """Where in this order, in which points of one series are neighbours, each series starts."""
    series = rows.column("series", Numbers).values[order]
    return np.append(0, np.flatnonzero(series[1:] != series[:-1]) + 1)


def names_in_prometheus(rows: Rows, order: Any) -> dict[str, list[str]]:
    """All names of the metrics of these rows, in UTF-8 form and in escaped form."""
    named = prometheus_names(rows, order[first_rows(rows, order)])
    return {"metric_name": [*{name for names in named for name in names.dictionary.to_pylist() if name is not None}]}


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
    return coded_texts(place, pa.array(names, pa.string())), coded_texts(place, pa.array(escaped, pa.string()))


def _own_names(rows: Rows, chosen: Any) -> tuple[pa.Array, pa.Array]:
    """The names as Prometheus sent them."""
    names, types = (rows.column(name, Coded) for name in ("metric_name", "metric_type"))
    is_entry = pc.equal(types.values, METADATA_ENTRY).to_numpy(zero_copy_only=False)
    codes = np.where(is_entry[_codes(types, chosen)], -1, _codes(names, chosen))
    escaped = pa.array([escaped_own_name(name) for name in names.values.to_pylist()], pa.string())
    return coded_texts(codes, names.values), coded_texts(codes, escaped)


def _codes(column: Coded, chosen: Any) -> Any:
    return column.codes[chosen if column.owner is None else column.owner[chosen]]


def _is_monotonic(rows: Rows, chosen: Any) -> Any:
    if "monotonic" not in rows.columns:
        return np.zeros(len(chosen), np.int64)
    column = rows.column("monotonic", Numbers)
    said = column.values if column.valid is None else column.values & column.valid
    return said[chosen if column.owner is None else column.owner[chosen]].astype(np.int64)
