"""The columns of remote-write's points: times, values, types, native histograms, exemplars.

A column that no point fills is left out: plain samples, which nearly all points are, pay nothing for histograms.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from lakerunner.model.prometheus import METADATA_ENTRY
from lakerunner.pipeline.read.remote_write_histogram import CUSTOM_BUCKETS
from lakerunner.pipeline.read.remote_write_texts import ENTRY, TYPES
from lakerunner.pipeline.read.remote_write_walk import SAMPLED, Walked
from lakerunner.pipeline.read.rows import Attached, Coded, Column, Lists, Numbers, Structs

COUNTER, GAUGE_HINT = 1, 3
_HINTS = {1: "yes", 2: "no", GAUGE_HINT: "gauge"}
# Prometheus' words are kept but for those that OTLP has another one for.
_TYPE_NAMES = {ENTRY: METADATA_ENTRY, **dict(enumerate(TYPES)), COUNTER: "sum"}
_SIDES = ("positive", "negative")


def point_columns(walked: Walked, points: Any, series: Any) -> dict[str, Column]:
    """`series` are the points' series."""
    columns: dict[str, Column] = {
        "time_unix_nano": Numbers(np.ascontiguousarray(points["time"])),
        "start_time_unix_nano": Numbers(np.ascontiguousarray(points["start"])),
        "value": Numbers(np.ascontiguousarray(points["value"]).view(np.float64), points["kind"] == SAMPLED),
    }
    histograms = walked.histograms
    columns |= _type_columns(walked.series["type"], series, points["kind"], histograms)
    if len(histograms):
        columns |= _histogram_columns(walked, len(points))
    if len(walked.exemplars) > 1:
        columns["exemplars"] = _exemplars(walked)
    return columns


def _type_columns(by_series: Any, series: Any, kinds: Any, histograms: Any) -> dict[str, Column]:
    """metric_type, and for counters that they are cumulative and only grow. Samples are of the type that the metadata
    says, native histograms of the one that their buckets are, whatever it says."""
    numbers, codes = np.unique(by_series, return_inverse=True)
    names = [_TYPE_NAMES.get(number, f"type_{number}") for number in numbers.tolist()]
    codes, types = codes.astype(np.int32)[series], by_series[series]
    if len(histograms):
        codes[histograms["row"]] = len(names) + (histograms["schema"] == CUSTOM_BUCKETS)
        names += ["exponential_histogram", "histogram"]
    columns: dict[str, Column] = {"metric_type": Coded(codes, pa.array(names))}
    counters = (types == COUNTER) & (kinds == SAMPLED)
    cumulative = counters.copy()
    cumulative[histograms["row"][histograms["reset"] != GAUGE_HINT]] = True
    if cumulative.any():
        columns["temporality"] = Coded(np.where(cumulative, 0, -1).astype(np.int32), pa.array(["cumulative"]))
    if counters.any():
        columns["monotonic"] = Numbers(counters, counters)
    return columns


def _histogram_columns(walked: Walked, count: int) -> dict[str, Column]:
    histograms = walked.histograms
    rows = histograms["row"]

    def numbers(field: str, dtype: Any, chosen: Any) -> Numbers:
        values, valid = np.zeros(count, dtype), np.zeros(count, np.bool_)
        values[rows] = np.ascontiguousarray(histograms[field]).view(dtype)
        valid[rows[chosen]] = True
        return Numbers(values, valid)

    every = np.ones(len(rows), np.bool_)
    is_float, zero_is_float = histograms["is_float"], histograms["zero_is_float"]
    columns: dict[str, Column] = {
        "count": numbers("count", np.uint64, ~is_float),
        "float_count": numbers("float_count", np.float64, is_float),
        "sum": numbers("sum", np.float64, every),
        "scale": numbers("schema", np.int32, every),
        "zero_count": numbers("zero_count", np.uint64, ~zero_is_float),
        "float_zero_count": numbers("float_zero_count", np.float64, zero_is_float),
        "zero_threshold": numbers("zero_threshold", np.float64, every),
        "reset_hint": _reset_hints(histograms, count),
        **_bucket_columns(walked, count),
    }
    return {name: column for name, column in columns.items() if _fills(column)}


def _fills(column: Column) -> bool:
    """Whether any row has a value in this column."""
    match column:
        case Numbers(_, valid) | Structs(valid=valid):
            return valid is None or bool(valid.any())
        case Coded(codes):
            return bool((codes >= 0).any())
        case Lists(first):
            return bool(first[-1] > 0)
        case _:
            return True


def _reset_hints(histograms: Any, count: int) -> Coded:
    numbers, found = np.unique(histograms["reset"], return_inverse=True)
    codes = np.full(count, -1, np.int32)
    codes[histograms["row"]] = np.where(histograms["reset"] == 0, -1, found)
    return Coded(codes, pa.array([_HINTS.get(number, f"hint_{number}") for number in numbers.tolist()]))


def _bucket_columns(walked: Walked, count: int) -> dict[str, Column]:
    """In `walked.buckets` stand for each histogram the counts of its positive side, then those of its negative."""
    histograms = walked.histograms
    rows, custom = histograms["row"], histograms["schema"] == CUSTOM_BUCKETS
    sizes = np.stack([histograms[side] for side in _SIDES], axis=1).ravel()
    floats = np.stack([histograms[f"{side}_is_float"] for side in _SIDES], axis=1).ravel()
    negative = np.tile(np.array([False, True]), len(rows))
    of_custom = np.repeat(custom, 2)

    def lists(chosen: Any, is_float: bool) -> Lists:
        """The counts of this kind of the chosen ones of `sizes`."""
        chosen = chosen & (floats == is_float)
        values = walked.buckets[: int(sizes.sum())][np.repeat(chosen, sizes)]
        return _lists(rows, np.where(chosen, sizes, 0).reshape(-1, 2).sum(axis=1), values, count, is_float)

    columns: dict[str, Column] = {
        "bounds": _lists(rows, histograms["bounds"], walked.bounds, count, is_float=True),
        "bucket_counts": lists(of_custom, is_float=False),
        "float_bucket_counts": lists(of_custom, is_float=True),
    }
    for side, name in enumerate(_SIDES):
        chosen = ~of_custom & (negative == bool(side))
        offset, valid = np.zeros(count, np.int32), np.zeros(count, np.bool_)
        offset[rows] = histograms[f"{name}_offset"]
        valid[rows] = ~custom & (histograms[name] > 0)
        fields: dict[str, Column] = {
            "offset": Numbers(offset),
            "counts": lists(chosen, is_float=False),
            "float_counts": lists(chosen, is_float=True),
        }
        columns[name] = Structs(fields, valid=valid)
    return columns


def _lists(rows: Any, sizes: Any, values: Any, count: int, is_float: bool) -> Lists:
    """Lists of `sizes` for these rows, which ascend, empty for the others; `values` are bits."""
    lengths = np.zeros(count + 1, np.int32)
    lengths[rows + 1] = sizes
    first = np.cumsum(lengths, dtype=np.int32)
    values = values[: int(first[-1])]
    return Lists(first, Numbers(values.view(np.float64) if is_float else values))


def _exemplars(walked: Walked) -> Lists:
    exemplars = walked.exemplars[:-1]
    time = np.ascontiguousarray(exemplars["time"])
    none = np.zeros(len(exemplars), np.bool_)
    nothing = Coded(np.full(len(exemplars), -1, np.int32), pa.array([], pa.binary()))
    fields: dict[str, Column] = {
        "timestamp": Numbers(time, time != 0),
        "double_value": Numbers(np.ascontiguousarray(exemplars["value"]).view(np.float64)),
        "int_value": Numbers(np.zeros(len(exemplars), np.int64), none),
        "trace_id": nothing,
        "span_id": nothing,
    }
    first = np.ascontiguousarray(walked.exemplars["first"])
    return Lists(
        np.ascontiguousarray(walked.points["first"]), Structs(fields, Attached(*walked.exemplar_labels, first))
    )
