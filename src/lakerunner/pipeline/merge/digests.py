"""A digest of 64 bits for each row of some columns: rows have the same one if they are equal in all of them.

Numbers are equal by their bits: a NaN is equal to itself, -0.0 is not 0.0. Maps are equal whatever the order of
different keys, as attributes are; several values of one key have an order.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import pyarrow as pa
from numba import njit

from lakerunner.pipeline.read.memory import PADDING, digest, folded

_TEXT, _NUMBER, _LIST, _MAP, _STRUCT, _ROW = (np.uint64(seed) for seed in (0x74, 0x6E, 0x6C, 0x6D, 0x73, 0x72))
_NULL = np.uint64(0x9FB21C651E98DF25)
_MIX = np.uint64(0xD6E8FEB86659FD93)


def digest_rows(columns: Iterable[pa.Array], rows: int) -> Any:
    """Of so many rows."""
    digests = np.full(rows, _ROW, np.uint64)
    for column in columns:
        _mix(digests, digest_values(column))
    return digests


def digest_values(array: pa.Array) -> Any:
    """Of each value."""
    kind = array.type
    if pa.types.is_dictionary(kind):
        digests = _of_codes(array)
    elif pa.types.is_string(kind) or pa.types.is_binary(kind):
        digests = _of_texts(array)
    elif pa.types.is_map(kind):
        at, first, end = _offsets(array)
        digests = _of_maps(at, _part(array.keys, first, end), _part(array.items, first, end))
    elif pa.types.is_list(kind):
        at, first, end = _offsets(array)
        digests = _of_lists(at, _part(array.values, first, end))
    elif pa.types.is_struct(kind):
        digests = np.full(len(array), _STRUCT, np.uint64)
        for number in range(kind.num_fields):
            _mix(digests, digest_values(array.field(number)))
    else:
        digests = _of_numbers(_bits(array))
    if array.null_count and not pa.types.is_dictionary(kind):
        digests[array.is_null().to_numpy(zero_copy_only=False)] = _NULL
    return digests


def _of_codes(array: pa.Array) -> Any:
    of_values = np.append(digest_values(array.dictionary), _NULL)
    return of_values[array.indices.fill_null(len(array.dictionary)).to_numpy(zero_copy_only=False)]


def _of_texts(array: pa.Array) -> Any:
    binary = array.cast(pa.large_binary())
    _, offsets, body = binary.buffers()
    at = np.frombuffer(offsets, np.int64, len(binary) + 1, 8 * binary.offset) if len(binary) else np.zeros(1, np.int64)
    data = np.zeros(int(at[-1] - at[0]) + PADDING, np.uint8)
    if body is not None:
        data[:-PADDING] = np.frombuffer(body, np.uint8)[at[0] : at[-1]]
    return _of_slices(data, at - at[0])


def _offsets(array: pa.Array) -> tuple[Any, int, int]:
    """(where each list starts, from 0, and the last ends; the first and the end of their values)"""
    at = array.offsets.to_numpy()
    return at - at[0], int(at[0]), int(at[-1])


def _part(values: pa.Array, first: int, end: int) -> Any:
    return digest_values(values.slice(first, end - first))


def _bits(array: pa.Array) -> Any:
    if pa.types.is_boolean(array.type):
        return array.fill_null(False).to_numpy(zero_copy_only=False).astype(np.uint64)
    if pa.types.is_timestamp(array.type):
        array = array.cast(pa.int64())
    if array.null_count:
        array = array.fill_null(0)
    values = array.to_numpy(zero_copy_only=False)
    if values.dtype == np.float64:
        return values.view(np.uint64)
    return values.astype(np.int64).view(np.uint64)


@njit(cache=True)
def _mix(digests: Any, others: Any) -> Any:
    for row in range(len(digests)):
        digests[row] = folded(digests[row] ^ others[row], _MIX)


@njit(cache=True)
def _of_numbers(bits: Any) -> Any:
    out = np.empty(len(bits), np.uint64)
    for row in range(len(bits)):
        out[row] = folded(bits[row] ^ _NUMBER, _MIX)
    return out


@njit(cache=True)
def _of_slices(data: Any, at: Any) -> Any:
    out = np.empty(len(at) - 1, np.uint64)
    for row in range(len(out)):
        out[row] = digest(data, at[row], at[row + 1] - at[row], _TEXT)
    return out


@njit(cache=True)
def _of_lists(at: Any, values: Any) -> Any:
    out = np.empty(len(at) - 1, np.uint64)
    for row in range(len(out)):
        value = folded(_LIST ^ np.uint64(at[row + 1] - at[row]), _MIX)
        for index in range(at[row], at[row + 1]):
            value = folded(value ^ values[index], _MIX)
        out[row] = value
    return out


@njit(cache=True)
def _of_maps(at: Any, keys: Any, values: Any) -> Any:
    """The sum of the pairs; each knows how many of the same key stand before it."""
    out = np.empty(len(at) - 1, np.uint64)
    for row in range(len(out)):
        total = _MAP
        for index in range(at[row], at[row + 1]):
            before = np.uint64(0)
            for other in range(at[row], index):
                before += np.uint64(keys[other] == keys[index])
            total += folded(folded(keys[index] ^ before, _MIX) ^ values[index], _MIX)
        out[row] = total
    return out
