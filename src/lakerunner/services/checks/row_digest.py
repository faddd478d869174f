"""A digest of each row, equal for equal rows whichever segment they stand in.

Comes in: record batches of a segment. Goes out: 64 bits for each row, of all its columns or of some. What two segments
may write differently counts as the same: an attribute in a column of its own or in the map, a whole number in `value`
or in `int_value`, a column that no row fills and one that is not there.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from numba import njit

from lakerunner.model.fingerprint import digest64
from lakerunner.model.signal import SCOPES
from lakerunner.model.typed_json import encode_value
from lakerunner.pipeline.read.memory import PADDING
from lakerunner.pipeline.steps.owners import digest_slices

Digests = npt.NDArray[np.uint64]

_MULTIPLIER = np.uint64(0x9E3779B97F4A7C15)
_SEED = np.uint64(0x66736B63)
_NUMBER = ("value", "int_value")
_MAPS = {scope.map_column: scope.prefix for scope in SCOPES}


def row_digests(
    batch: pa.RecordBatch, columns: Sequence[str] | None = None, json: Collection[str] = frozenset()
) -> Digests:
    """Of these columns, or of all; those that the batch lacks count as null. `json` are the columns of attributes whose
    values are typed JSON already."""
    out = np.zeros(batch.num_rows, np.uint64)
    names = batch.schema.names if columns is None else [name for name in columns if name in batch.schema.names]
    with np.errstate(over="ignore"):
        for name in names:
            if name not in _NUMBER:
                out += _of_column(name, batch.column(name), name in json)
        if columns is None:
            out += _of_number(batch)
    return out


def attribute_digests(batch: pa.RecordBatch, map_column: str, json: Collection[str] = frozenset()) -> Digests:
    """Of all attributes of one scope, those in columns of their own and those in the map."""
    prefix = _MAPS[map_column]
    out = np.zeros(batch.num_rows, np.uint64)
    with np.errstate(over="ignore"):
        for name in batch.schema.names:
            if name == map_column or name.startswith(prefix):
                out += _of_column(name, batch.column(name), name in json)
    return out


def _of_column(name: str, column: pa.Array, is_json: bool = False) -> Digests:
    if name in _MAPS:
        return _of_map(column, _name_digest(_MAPS[name]))
    prefix = next((prefix for prefix in _MAPS.values() if name.startswith(prefix)), None)
    if prefix is None:
        return _of_valid(column, _mixed(_of_array(column) ^ _name_digest(name)))
    key = _of_array(pa.array([name.removeprefix(prefix)]))[0]
    return _of_valid(
        column, _pairs(_name_digest(prefix), key, _of_array(column) if is_json else _of_typed_json(column))
    )


def _of_number(batch: pa.RecordBatch) -> Digests:
    """`value` and `int_value` are one number."""
    given = [batch.column(name).cast(pa.float64(), safe=False) for name in _NUMBER if name in batch.schema.names]
    if not given:
        return np.zeros(batch.num_rows, np.uint64)
    return _of_column("number", pc.coalesce(*given))


def _of_typed_json(column: pa.Array) -> Digests:
    """Of the text that would stand in the map for this value."""
    found = pc.dictionary_encode(column)
    texts = [encode_value(value) for value in found.dictionary.to_pylist()]
    if not texts:
        return np.zeros(len(column), np.uint64)
    digests: Digests = _of_array(pa.array(texts, pa.string()))[found.indices.fill_null(0).to_numpy()]
    return digests


def _of_valid(column: pa.Array, digests: Digests) -> Digests:
    """Null counts as nothing."""
    if column.null_count == 0:
        return digests
    return np.where(column.is_valid().to_numpy(zero_copy_only=False), digests, np.uint64(0))


def _of_array(column: pa.Array) -> Digests:
    """Of each value; what null gives is left open."""
    if isinstance(column, pa.DictionaryArray):
        column = column.dictionary_decode()
    kind = column.type
    if pa.types.is_map(kind):
        return _of_map(column, _SEED)
    if pa.types.is_list(kind):
        return _of_list(column)
    if pa.types.is_struct(kind):
        total = np.zeros(len(column), np.uint64)
        for place in range(kind.num_fields):
            child = pc.struct_field(column, place)
            total += _of_valid(child, _mixed(_of_array(child) ^ _name_digest(kind.field(place).name)))
        return _mixed(total)
    if pa.types.is_string(kind) or pa.types.is_binary(kind):
        return _of_bytes(column.cast(pa.binary()))
    return _of_bits(column)


def _of_bits(column: pa.Array) -> Digests:
    if pa.types.is_boolean(column.type):
        column = column.cast(pa.uint8())
    elif pa.types.is_timestamp(column.type):
        column = column.cast(pa.int64())
    values = column.fill_null(0).to_numpy(zero_copy_only=False)
    if pa.types.is_floating(column.type):
        return _mixed(values.astype(np.float64).view(np.uint64))
    return _mixed(values.astype(np.int64).view(np.uint64) if values.dtype.kind == "i" else values.astype(np.uint64))


def _of_bytes(column: pa.Array) -> Digests:
    offsets = np.frombuffer(column.buffers()[1], np.int32)[column.offset : column.offset + len(column) + 1]
    data = column.buffers()[2]
    stored = np.frombuffer(data, np.uint8) if data is not None else np.zeros(0, np.uint8)
    low, high = (int(offsets[0]), int(offsets[-1])) if len(offsets) else (0, 0)
    padded = np.concatenate([stored[low:high], np.zeros(PADDING, np.uint8)])
    digests: Digests = digest_slices(padded, offsets[:-1] - low, np.diff(offsets), _SEED)
    return digests


def _of_list(column: pa.Array) -> Digests:
    """In their order."""
    offsets = column.offsets.to_numpy()
    children = column.values.slice(offsets[0], offsets[-1] - offsets[0])
    digests: Digests = _folded(_of_valid(children, _of_array(children)), offsets - offsets[0])
    return digests


def _of_map(column: pa.Array, seed: np.uint64) -> Digests:
    """In any order."""
    offsets = column.offsets.to_numpy()
    low, count = offsets[0], offsets[-1] - offsets[0]
    pairs = _pairs(seed, _of_array(column.keys.slice(low, count)), _of_array(column.items.slice(low, count)))
    digests: Digests = _summed(pairs, offsets - low)
    return digests


def _pairs(seed: np.uint64, keys: Any, values: Digests) -> Digests:
    return _mixed(_mixed(keys ^ seed) + values)


def _name_digest(name: str) -> np.uint64:
    return np.uint64(digest64(name) & 0xFFFFFFFFFFFFFFFF)


def _mixed(values: Any) -> Digests:
    """splitmix64's finish: every bit of the input moves every bit of the output."""
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
def _summed(children: Any, offsets: Any) -> Any:
    out = np.zeros(len(offsets) - 1, np.uint64)
    for row in range(len(offsets) - 1):
        for place in range(offsets[row], offsets[row + 1]):
            out[row] += children[place]
    return out
