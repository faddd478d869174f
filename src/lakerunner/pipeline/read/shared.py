"""Bound what rows get from the resource, scope, metric or series that they share with others.

A resource is sent once but belongs to each of its rows. Its texts are written once (steps/layout.py), but a reader of
the segment may expand it for each row, and the numbers of its attributes are written for each row: a megabyte shared by
a hundred thousand records would be 100 GB. So what a row shares beyond FREE_BYTES counts as its own size, by which rows
are grouped, and a file may share at most MAX_TIMES its size. As that limit is in proportion, requests that pass one by
one also pass in one object.

A push door only needs to know that no row shares more than FREE_BYTES, which nearly always holds: `most_shared` bounds
it from the wire, without rows.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow.compute as pc

from lakerunner.kernel_cache import njit
from lakerunner.pipeline.read.memory import Bytes, Int32s, Int64s
from lakerunner.pipeline.read.names import slices_of_names
from lakerunner.pipeline.read.otlp import ENTITY_REFS
from lakerunner.pipeline.read.rows import Attached, CodedColumn, Rows
from lakerunner.pipeline.read.wire import STRING, read_size, skip_field, tag_of

FREE_BYTES = 8 << 10  # what a row may share without counting it
MAX_TIMES = 32  # how many times its size a file may share beyond that
ENTRY_BYTES = 32  # the cost of an attribute beside its texts
# What a metric has beside its texts: the longest name of a type, and of a temporality.
_KIND_BYTES = 21 + 11

_HEAD, _ITEMS, _SCHEMA_URL = (tag_of(number, STRING) for number in (1, 2, 3))  # of ResourceX and ScopeX
_NAME, _DESCRIPTION, _UNIT, _METADATA = (tag_of(number, STRING) for number in (1, 2, 3, 12))  # of Metric
_MOST_KEY_BYTES = len(ENTITY_REFS)  # the only key that is not in the input


def count_shared(rows: Rows) -> tuple[Rows, int]:
    """Add to the sizes of the rows what they share beyond FREE_BYTES; return the rows and the sum of what was added."""
    sizes = [*_sizes(rows)]
    if sum(int(size.max(initial=0)) for size, _ in sizes) <= FREE_BYTES:
        return rows, 0  # as nearly always
    shared = np.zeros(rows.count, np.int64)
    for size, owner in sizes:
        shared += size[owner]
    beyond = np.maximum(shared - FREE_BYTES, 0)
    return replace(rows, sizes=rows.sizes + beyond), int(beyond.sum())


def reason_to_refuse(shared: int, size: int) -> str | None:
    """Return why a file of `size` bytes whose rows share `shared` bytes is refused; None if it is accepted."""
    if shared <= MAX_TIMES * size:
        return None
    return (
        f"{size} bytes become {shared} when resources, scopes, metrics and series are "
        f"repeated for each of their rows, beyond {FREE_BYTES} bytes per row: the limit is "
        f"{MAX_TIMES} times the size. Send smaller resources, or fewer records with each"
    )


def _sizes(rows: Rows) -> Iterator[tuple[Int64s, Int32s]]:
    """Yield (bytes of each owner, owner of each row) for everything that rows share."""
    for attached in rows.attached.values():
        if attached.owner is not None:
            yield _attribute_bytes(attached), attached.owner
    for column in rows.columns.values():
        if isinstance(column, CodedColumn) and column.owner is not None:
            lengths = pc.binary_length(column.values).to_numpy(zero_copy_only=False)
            yield np.append(lengths, 0)[column.codes], column.owner  # a code of -1 is null


def _attribute_bytes(attached: Attached) -> Int64s:
    _, key_sizes = slices_of_names(attached.keys)
    values = attached.values[: attached.first[-1]]  # readers may have allocated more
    ends = np.append(0, np.cumsum(values["size"].astype(np.int64) + key_sizes[values["key"]] + ENTRY_BYTES))
    sizes: Int64s = ends[attached.first[1:]] - ends[attached.first[:-1]]
    return sizes


def most_shared(data: Bytes, *, metrics: bool) -> int:
    """Return an upper bound of the bytes that a row of this checked OTLP request shares with others."""
    return int(_most_shared(data, metrics))


@njit(cache=True)
def _most_shared(data: Any, metrics: Any) -> Any:
    most, at = np.int64(0), np.int64(0)
    while at < len(data):
        if data[at] == _HEAD:
            start, at = read_size(data, at + 1)
            most = max(most, _shared_by_resource(data, start, at, metrics))
        else:
            at = skip_field(data, at)
    return most


@njit(cache=True)
def _shared_by_resource(data: Any, at: Any, end: Any, metrics: Any) -> Any:
    own, most = np.int64(0), np.int64(0)
    while at < end:
        tag = data[at]
        if tag == _ITEMS:
            start, at = read_size(data, at + 1)
            most = max(most, _shared_by_scope(data, start, at, metrics))
        elif tag == _HEAD:
            start, at = read_size(data, at + 1)
            own += _head_bytes(data, start, at)
        else:
            start = at
            at = skip_field(data, at)
            own += at - start if tag == _SCHEMA_URL else 0
    return own + most


@njit(cache=True)
def _shared_by_scope(data: Any, at: Any, end: Any, metrics: Any) -> Any:
    own, most = np.int64(0), np.int64(0)
    while at < end:
        tag = data[at]
        if tag == _ITEMS:
            start, at = read_size(data, at + 1)
            if metrics:
                most = max(most, _shared_by_metric(data, start, at))
        elif tag == _HEAD:
            start, at = read_size(data, at + 1)
            own += _head_bytes(data, start, at)
        else:
            start = at
            at = skip_field(data, at)
            own += at - start if tag == _SCHEMA_URL else 0
    return own + most


@njit(cache=True)
def _head_bytes(data: Any, at: Any, end: Any) -> Any:
    """Return an upper bound of the size of a Resource or InstrumentationScope: each field may be an attribute."""
    size = end - at
    while at < end:
        at = skip_field(data, at)
        size += ENTRY_BYTES + _MOST_KEY_BYTES
    return size


@njit(cache=True)
def _shared_by_metric(data: Any, at: Any, end: Any) -> Any:
    own = np.int64(_KIND_BYTES)
    while at < end:
        start, tag = at, data[at]
        at = skip_field(data, at)
        if tag in (_NAME, _DESCRIPTION, _UNIT, _METADATA):
            own += at - start + ENTRY_BYTES
    return own
