"""Which time series a point belongs to: a 64-bit digest of all that names it.

It is the same on every worker and in every release, whatever the order in which attributes come. Two points are of one
series if they are equal in metric name, type, unit, temporality and monotonic, in the attributes of point, resource and
scope with their types, and in the scope's name and version. Of what Prometheus sent, name and labels alone count: its
metadata comes at times and at others not. docs/formats/segments.md states how it is made.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numba import njit

from lakerunner.model.prometheus import METADATA_ENTRY
from lakerunner.model.signal import SCOPES
from lakerunner.pipeline.read.memory import PADDING, folded
from lakerunner.pipeline.read.rows import Coded, Numbers, Rows
from lakerunner.pipeline.steps.owners import digest_slices, share_owners

# Stored digests are made of these: they never change.
_START, _MIX, _TEXT_SEED = np.uint64(0x73657269657331), np.uint64(0x9FB21C651E98DF25), np.uint64(0x74657874)
_TEXTS = ("metric_name", "metric_type", "unit", "temporality", "scope_name", "scope_version")
_OF_PROMETHEUS = ("metric_name", "metric_type")
_NO_TEXT = np.uint64(0)


def identify_series(rows: Rows) -> Rows:
    """Adds series; rows with equal attributes share their owner from here on."""
    series = np.full(rows.count, _START)
    for name in _TEXTS:
        if name in rows.columns and (name in _OF_PROMETHEUS or not rows.prometheus):
            column = rows.column(name, Coded)
            digests = _digests_of(column.values)
            if rows.prometheus and name == "metric_type":
                # A metadata entry is not of the series that has its name.
                digests[pc.not_equal(column.values, METADATA_ENTRY).to_numpy(zero_copy_only=False)] = _NO_TEXT
            table = np.append(digests, _NO_TEXT)  # a code of -1 is the last one
            by_owner = table[column.codes]
            _mix(series, by_owner if column.owner is None else by_owner[column.owner])
        else:
            _mix(series, np.full(rows.count, _NO_TEXT))
    _mix(series, _monotonic(rows))
    attached = dict(rows.attached)
    for scope in SCOPES:
        attached[scope.map_column], digests = share_owners(attached[scope.map_column], rows.data)
        _mix(series, digests[attached[scope.map_column].owner])
    return replace(rows, attached=attached).plus(series=Numbers(series.view(np.int64)))


def _monotonic(rows: Rows) -> Any:
    """0 where it is not said, else 1 or 2."""
    if rows.prometheus or "monotonic" not in rows.columns:
        return np.zeros(rows.count, np.uint64)
    column = rows.column("monotonic", Numbers)
    valid = np.ones(len(column.values), np.bool_) if column.valid is None else column.valid
    said = np.where(valid, np.where(column.values, 2, 1), 0).astype(np.uint64)
    return said if column.owner is None else said[column.owner]


def _digests_of(texts: pa.Array) -> Any:
    """The digest of each of these strings."""
    binary = texts.cast(pa.large_binary())
    if not len(binary):
        return np.zeros(0, np.uint64)
    _, offsets, body = binary.buffers()
    at = np.frombuffer(offsets, np.int64)[binary.offset : binary.offset + len(binary) + 1]
    bytes_ = np.zeros(0, np.uint8) if body is None else np.frombuffer(body, np.uint8)
    padded = np.concatenate([bytes_, np.zeros(PADDING, np.uint8)])
    return digest_slices(padded, at[:-1], np.diff(at), _TEXT_SEED)


@njit(cache=True)
def _mix(series: Any, part: Any) -> Any:
    """Each digest with one more part in it."""
    for row in range(len(series)):
        series[row] = folded(series[row] ^ part[row], _MIX)
