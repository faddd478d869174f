"""Compute a digest of each row, equal for equal rows in any segment.

Comes in: record batches of a segment. Goes out: 64 bits for each row, of all its columns or of some. What two
segments may store differently counts as equal: an attribute in a column of its own or in the map, a whole number in
`value` or in `int_value`, an empty column and a missing one.

`identities` says what makes a row of a segment the same row as one of another segment: for logs (delivery,
delivery_row) and the sort key, unknown where they lack these; for points and spans all columns.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lakerunner.kernel_cache import njit
from lakerunner.model.segment import Segment, digest64
from lakerunner.model.signal import SCOPES, spec_of
from lakerunner.model.time import TimeRange
from lakerunner.model.typed_json import encode_value
from lakerunner.objects.store import SegmentStore
from lakerunner.pipeline.read.memory import digest_slices
from lakerunner.pipeline.steps.arrow_columns import padded_texts
from lakerunner.services.checks.segment_reading import batches, opened

Digests = npt.NDArray[np.uint64]

_MULTIPLIER = np.uint64(0x9E3779B97F4A7C15)
_SEED = np.uint64(0x66736B63)
_NUMBER = ("value", "int_value")
_MAPS = {scope.map_column: scope.prefix for scope in SCOPES}


def row_digests(
    batch: pa.RecordBatch, columns: Sequence[str] | None = None, json: Collection[str] = frozenset()
) -> Digests:
    """Return the digests of the rows over these columns, or over all; columns that the batch lacks count as null.
    `json` are the attribute columns whose values are typed JSON already."""
    out = np.zeros(batch.num_rows, np.uint64)
    names = batch.schema.names if columns is None else [name for name in columns if name in batch.schema.names]
    with np.errstate(over="ignore"):
        for name in names:
            if name not in _NUMBER:
                out += _digest_column(name, batch.column(name), name in json)
        if columns is None:
            out += _digest_number(batch)
    return out


def attribute_digests(batch: pa.RecordBatch, map_column: str, json: Collection[str] = frozenset()) -> Digests:
    """Return the digests of all attributes of one scope, in columns of their own and in the map."""
    prefix = _MAPS[map_column]
    out = np.zeros(batch.num_rows, np.uint64)
    with np.errstate(over="ignore"):
        for name in batch.schema.names:
            if name == map_column or name.startswith(prefix):
                out += _digest_column(name, batch.column(name), name in json)
    return out


def _digest_column(name: str, column: pa.Array, is_json: bool = False) -> Digests:
    if name in _MAPS:
        return _digest_map(column, _name_digest(_MAPS[name]))
    prefix = next((prefix for prefix in _MAPS.values() if name.startswith(prefix)), None)
    if prefix is None:
        return _zero_nulls(column, _mix(_digest_array(column) ^ _name_digest(name)))
    key = _digest_array(pa.array([name.removeprefix(prefix)]))[0]
    return _zero_nulls(
        column, _pairs(_name_digest(prefix), key, _digest_array(column) if is_json else _digest_typed_json(column))
    )


def _digest_number(batch: pa.RecordBatch) -> Digests:
    """Return the digests of the number that `value` and `int_value` hold together."""
    given = [batch.column(name).cast(pa.float64(), safe=False) for name in _NUMBER if name in batch.schema.names]
    if not given:
        return np.zeros(batch.num_rows, np.uint64)
    return _digest_column("number", pc.coalesce(*given))


def _digest_typed_json(column: pa.Array) -> Digests:
    """Return the digests of the text that the map would hold for each value."""
    found = pc.dictionary_encode(column)
    texts = [encode_value(value) for value in found.dictionary.to_pylist()]
    if not texts:
        return np.zeros(len(column), np.uint64)
    digests: Digests = _digest_array(pa.array(texts, pa.string()))[found.indices.fill_null(0).to_numpy()]
    return digests


def _zero_nulls(column: pa.Array, digests: Digests) -> Digests:
    """Return the digests with 0 for null."""
    if column.null_count == 0:
        return digests
    return np.where(column.is_valid().to_numpy(zero_copy_only=False), digests, np.uint64(0))


def _digest_array(column: pa.Array) -> Digests:
    """Return the digest of each value; that of null is undefined."""
    if isinstance(column, pa.DictionaryArray):
        column = column.dictionary_decode()
    kind = column.type
    if pa.types.is_map(kind):
        return _digest_map(column, _SEED)
    if pa.types.is_list(kind):
        return _digest_list(column)
    if pa.types.is_struct(kind):
        total = np.zeros(len(column), np.uint64)
        for place in range(kind.num_fields):
            child = pc.struct_field(column, place)
            total += _zero_nulls(child, _mix(_digest_array(child) ^ _name_digest(kind.field(place).name)))
        return _mix(total)
    if pa.types.is_string(kind) or pa.types.is_binary(kind):
        digests: Digests = digest_slices(*padded_texts(column), _SEED)
        return digests
    return _digest_bits(column)


def _digest_bits(column: pa.Array) -> Digests:
    if pa.types.is_boolean(column.type):
        column = column.cast(pa.uint8())
    elif pa.types.is_timestamp(column.type):
        column = column.cast(pa.int64())
    values = column.fill_null(0).to_numpy(zero_copy_only=False)
    if pa.types.is_floating(column.type):
        return _mix(values.astype(np.float64).view(np.uint64))
    return _mix(values.astype(np.int64).view(np.uint64) if values.dtype.kind == "i" else values.astype(np.uint64))


def _digest_list(column: pa.Array) -> Digests:
    """Return the digest of each list; the order of its values counts."""
    offsets = column.offsets.to_numpy()
    children = column.values.slice(offsets[0], offsets[-1] - offsets[0])
    digests: Digests = _folded(_zero_nulls(children, _digest_array(children)), offsets - offsets[0])
    return digests


def _digest_map(column: pa.Array, seed: np.uint64) -> Digests:
    """Return the digest of each map; the order of its entries does not count."""
    offsets = column.offsets.to_numpy()
    low, count = offsets[0], offsets[-1] - offsets[0]
    pairs = _pairs(seed, _digest_array(column.keys.slice(low, count)), _digest_array(column.items.slice(low, count)))
    digests: Digests = _sum_children(pairs, offsets - low)
    return digests


def _pairs(seed: np.uint64, keys: Any, values: Digests) -> Digests:
    return _mix(_mix(keys ^ seed) + values)


def _name_digest(name: str) -> np.uint64:
    return np.uint64(digest64(name) & 0xFFFFFFFFFFFFFFFF)


def _mix(values: Any) -> Digests:
    """Mix bits by the finalizer of splitmix64: every bit of the input affects every bit of the output."""
    with np.errstate(over="ignore"):
        values = values * _MULTIPLIER
        values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        mixed: Digests = values ^ (values >> np.uint64(31))
    return mixed


@njit(cache=True)
def _folded(children: Any, offsets: Any) -> Any:
    out = np.empty(len(offsets) - 1, np.uint64)
    for row in range(len(offsets) - 1):
        value = np.uint64(offsets[row + 1] - offsets[row])
        for place in range(offsets[row], offsets[row + 1]):
            value = (value ^ children[place]) * np.uint64(0x9E3779B97F4A7C15)
            value ^= value >> np.uint64(29)
        out[row] = value
    return out


@njit(cache=True)
def _sum_children(children: Any, offsets: Any) -> Any:
    out = np.zeros(len(offsets) - 1, np.uint64)
    for row in range(len(offsets) - 1):
        for place in range(offsets[row], offsets[row + 1]):
            out[row] += children[place]
    return out


_DELIVERY = ("delivery", "delivery_row")


@dataclass(frozen=True)
class Identities:
    """Some rows: their positions in the segment, their digests, and whether the digest identifies the row."""

    rows: npt.NDArray[np.int64]
    digests: Digests
    known: npt.NDArray[np.bool_]


def identities(store: SegmentStore, segment: Segment, time: TimeRange, directory: Path) -> Iterator[Identities]:
    """Yield the identities of the segment's rows in this time, in batches. Corrupt if its file cannot be read."""
    columns: list[str] | None = None
    there = {column.name for column in segment.columns}
    if segment.signal == "logs":
        columns = [name for name in (*_DELIVERY, *spec_of("logs", 0).sort_by) if name in there]
    json = {column.name for column in segment.columns if column.type == "json"}
    before = 0
    with opened(store, segment.path, segment.bytes, directory) as file:
        for batch in batches(file, segment.path, columns):
            within = is_within(batch, time)
            rows = batch.filter(within)
            if rows.num_rows:
                places = np.flatnonzero(within.to_numpy(zero_copy_only=False)) + before
                yield Identities(places, row_digests(rows, columns, json), _are_identified(rows, segment.signal))
            before += batch.num_rows


def _are_identified(rows: pa.RecordBatch, signal: str) -> npt.NDArray[np.bool_]:
    known = np.ones(rows.num_rows, np.bool_)
    for name in _DELIVERY if signal == "logs" else ():
        there = name in rows.schema.names
        known &= rows.column(name).is_valid().to_numpy(zero_copy_only=False) if there else False
    return known


def is_within(batch: pa.RecordBatch, time: TimeRange) -> pa.Array:
    """Mark the rows of this time."""
    times = batch.column("timestamp").cast(pa.int64())
    return pc.and_(pc.greater_equal(times, time.start_ns), pc.less(times, time.end_ns))
