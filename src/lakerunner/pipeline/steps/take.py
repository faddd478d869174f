"""Take chosen rows of a column, in a chosen order, as an Arrow array: the one place where values are copied.

Comes in: slices of the input, (at, size) per row with at < 0 for null, or a whole Column of Rows and row numbers. Goes
out: an array of the requested type, a dictionary array if that type is one. The same rows give the same buffers, bit
for bit.

Nested columns are built from inside: the items of the chosen rows are numbered in their order, and taken like rows.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from lakerunner.kernel_cache import njit
from lakerunner.model.signal import OVERFLOW
from lakerunner.pipeline.read.memory import AHEAD, PADDING, copy, load, prefetch
from lakerunner.pipeline.read.names import names_for, number_all, slices_of_names
from lakerunner.pipeline.read.rows import (
    Attached,
    CodedColumn,
    Column,
    JsonColumn,
    ListColumn,
    NumberColumn,
    StructColumn,
    TextColumn,
)
from lakerunner.pipeline.read.walk import ABSENT, ARRAY, BOOL, DOUBLE, INT, KVLIST, STRING
from lakerunner.pipeline.read.wire import read_varint
from lakerunner.pipeline.steps.json_text import put_value, room, stack

# The field of a struct that holds its `attached` attributes.
ATTACHED_FIELD = "attributes"


class Slices(NamedTuple):
    """Where the payload of each row's value is; all have this `kind` (walk.STRING and so on)."""

    kind: int
    at: Any
    size: Any


def take(column: Column, data: Any, order: Any, kind: pa.DataType) -> pa.Array:
    """Return the rows `order` of this column as an array of type `kind`."""
    match column:
        case NumberColumn(values, valid, owner):
            rows = order if owner is None else owner[order]
            return numbers_array(values[rows], None if valid is None else valid[rows], kind)
        case CodedColumn(codes, values, owner):
            coded = coded_array(codes[order if owner is None else owner[order]], values)
            return coded if pa.types.is_dictionary(kind) else coded.dictionary_decode()
        case TextColumn():
            return slices_array(text_slices(column, order), data, kind)
        case JsonColumn(values):
            kinds, at, size = (values[field][order] for field in ("kind", "at", "size"))
            absent = kinds == ABSENT
            if absent.all():
                return pa.nulls(len(order), kind)
            return texts_array(take_json(data, kinds, np.where(absent, np.int32(-1), at), size, stack()), kind)
        case StructColumn():
            return _structs_array(column, data, order, kind)
        case ListColumn():
            return _lists_array(column, data, order, kind)


def _structs_array(column: StructColumn, data: Any, order: Any, kind: pa.DataType) -> pa.Array:
    """Build structs. The fields of a null struct may have any value, as they are never read. A missing field is
    null."""
    fields = []
    for field in kind:
        if column.attached is not None and field.name == ATTACHED_FIELD:
            chosen, offsets = flattened(column.attached.first, order)
            fields.append(map_array(column.attached, chosen, offsets, data))
        elif field.name in column.fields:
            fields.append(take(column.fields[field.name], data, order, field.type))
        else:
            fields.append(pa.nulls(len(order), field.type))
    valid = None if column.valid is None else column.valid[order]
    return pa.Array.from_buffers(kind, len(order), [validity_buffer(valid)], children=fields)


def _lists_array(column: ListColumn, data: Any, order: Any, kind: pa.DataType) -> pa.Array:
    items, offsets = flattened(column.first, order)
    valid = offsets[1:] > offsets[:-1] if column.empty_is_null else None
    values = take(column.items, data, items, kind.value_type)
    return pa.Array.from_buffers(kind, len(order), [validity_buffer(valid), pa.py_buffer(offsets)], children=[values])


def map_array(attached: Attached, chosen: Any, offsets: Any, data: Any) -> pa.Array:
    """Build maps of typed JSON by key: map j has the attributes chosen[offsets[j]:offsets[j + 1]]."""
    key, kind, at, size = (attached.values[field][chosen] for field in ("key", "kind", "at", "size"))
    names = attached.keys[1:]
    keys = slices_array(Slices(STRING, names["at"][key], names["size"][key]), data, pa.string())
    texts = texts_array(take_json(data, kind, at, size, stack()), pa.string())
    return pa.MapArray.from_arrays(pa.array(offsets), keys, texts).cast(OVERFLOW)


def text_slices(column: TextColumn, order: Any) -> Slices:
    at, size = column.at[order], column.size[order]
    return Slices(column.kind, np.where(size == 0, np.int32(-1), at) if column.empty_is_null else at, size)


def slices_array(slices: Slices, data: Any, kind: pa.DataType) -> pa.Array:
    """Return the values of these slices as an array of type `kind`."""
    if slices.kind in (INT, DOUBLE, BOOL):
        return numbers_array(numbers_of(slices, data), slices.at >= 0, kind)
    if pa.types.is_dictionary(kind):
        return coded_array(*code_slices(slices, data, kind.value_type))
    if slices.kind in (ARRAY, KVLIST):
        kinds = np.full(len(slices.at), slices.kind, np.int32)
        return texts_array(take_json(data, kinds, slices.at, slices.size, stack()), kind)
    return texts_array(_take_texts(data, slices.at, slices.size), kind)


def numbers_of(slices: Slices, data: Any) -> Any:
    """Return the int64, float64 or bool values of these slices; any value where there is none."""
    if slices.kind == DOUBLE:
        return _take_doubles(data, slices.at)
    values = _take_ints(data, slices.at)
    return values != 0 if slices.kind == BOOL else values


def code_slices(slices: Slices, data: Any, kind: pa.DataType) -> tuple[Any, pa.Array]:
    """Return (codes, distinct values) of text, bytes or JSON; -1 is null."""
    names = names_for(len(slices.at))
    codes = number_all(data, slices.at, slices.size, names)
    return codes, slices_array(Slices(slices.kind, *slices_of_names(names)), data, kind)


def count_distinct(slices: Slices, data: Any) -> tuple[int, int]:
    """Return (distinct values, values) among these."""
    names = names_for(len(slices.at))
    numbers = number_all(data, slices.at, slices.size, names)
    return int(names["size"][0]), int((numbers >= 0).sum())


def numbers_array(values: Any, valid: Any, kind: pa.DataType) -> pa.Array:
    body = np.packbits(values, bitorder="little") if kind == pa.bool_() else np.ascontiguousarray(values)
    return pa.Array.from_buffers(kind, len(values), [validity_buffer(valid), pa.py_buffer(body)])


def validity_buffer(valid: Any) -> pa.Buffer | None:
    """Return validity as Arrow's bitmap; None if there is no null."""
    return None if valid is None or valid.all() else pa.py_buffer(np.packbits(valid, bitorder="little"))


def texts_array(parts: tuple[Any, Any, Any], kind: pa.DataType) -> pa.Array:
    """Build an array from offsets, bytes and validity bits."""
    offsets, out, bits = parts
    buffers = [pa.py_buffer(bits), pa.py_buffer(offsets), pa.py_buffer(out)]
    return pa.Array.from_buffers(kind, len(offsets) - 1, buffers)


def coded_array(codes: Any, values: pa.Array) -> pa.Array:
    """Build a dictionary array that holds only the values that occur, in the order of first occurrence."""
    compact, used = _compact_codes(codes, len(values))
    indices = pa.Array.from_buffers(pa.int32(), len(compact), [validity_buffer(compact >= 0), pa.py_buffer(compact)])
    return pa.DictionaryArray.from_arrays(indices, values.take(pa.array(used)))


def coded_texts(codes: Any, texts: pa.Array) -> pa.Array:
    """Return the texts of these codes, -1 for null, as a dictionary array in which no text appears twice."""
    encoded = texts.dictionary_encode()
    numbers = np.append(encoded.indices.fill_null(-1).to_numpy(zero_copy_only=False).astype(np.int32), np.int32(-1))
    return coded_array(numbers[codes], encoded.dictionary)


@njit(cache=True)
def flattened(first: Any, owners: Any) -> Any:
    """Return (numbers of the items of these owners, where each owner's start): owner i has first[i] to first[i + 1]."""
    offsets = np.empty(len(owners) + 1, np.int32)
    offsets[0] = 0
    for place in range(len(owners)):
        offsets[place + 1] = offsets[place] + first[owners[place] + 1] - first[owners[place]]
    items = np.empty(offsets[-1], np.int32)
    for place in range(len(owners)):
        start = first[owners[place]]
        for item in range(offsets[place + 1] - offsets[place]):
            items[offsets[place] + item] = start + item
    return items, offsets


@njit(cache=True)
def _compact_codes(codes: Any, count: Any) -> Any:
    """Return (codes among the values that occur, the values that occur)."""
    number = np.full(count, -1, np.int32)
    used = np.empty(count, np.int32)
    fresh = 0
    out = np.empty(len(codes), np.int32)
    for row in range(len(codes)):
        code = codes[row]
        if code < 0:
            out[row] = -1
            continue
        if number[code] < 0:
            number[code] = fresh
            used[fresh] = code
            fresh += 1
        out[row] = number[code]
    return out, used[:fresh]


@njit(cache=True)
def _take_ints(data: Any, at: Any) -> Any:
    out = np.zeros(len(at), np.int64)
    for row in range(len(at)):
        prefetch(data, np.int64(at[min(row + AHEAD, len(at) - 1)]))
        if at[row] >= 0:
            number, _ = read_varint(data, np.int64(at[row]))
            out[row] = np.int64(number)
    return out


@njit(cache=True)
def _take_doubles(data: Any, at: Any) -> Any:
    out = np.zeros(len(at), np.uint64)
    for row in range(len(at)):
        prefetch(data, np.int64(at[min(row + AHEAD, len(at) - 1)]))
        if at[row] >= 0:
            out[row] = load(data, np.int64(at[row]))
    return out.view(np.float64)


@njit(cache=True)
def _take_texts(data: Any, at: Any, size: Any) -> Any:
    """Return (offsets, bytes, validity bits)."""
    count = len(at)
    offsets = np.empty(count + 1, np.int32)
    bits = np.zeros((count + 7) // 8, np.uint8)
    total = 0
    for row in range(count):
        offsets[row] = total
        if at[row] >= 0:
            bits[row >> 3] |= np.uint8(1 << (row & 7))
            total += size[row]
    offsets[count] = total
    out = np.empty(total + PADDING, np.uint8)
    for row in range(count):
        prefetch(data, np.int64(at[min(row + AHEAD, count - 1)]))
        start, end = np.int64(offsets[row]), np.int64(offsets[row + 1])
        copy(data, np.int64(at[row]), end - start, out, start)
    return offsets, out[:total], bits


@njit(cache=True)
def take_json(data: Any, kind: Any, at: Any, size: Any, levels: Any) -> Any:
    """Return (offsets, bytes, validity bits) of the typed JSON of these values; `levels` comes from json_text.stack."""
    count = len(at)
    offsets = np.empty(count + 1, np.int32)
    bits = np.zeros((count + 7) // 8, np.uint8)
    most = 0
    for row in range(count):
        if at[row] >= 0:
            most += room(np.int64(size[row]))
    out = np.empty(most, np.uint8)
    end = np.int64(0)
    for row in range(count):
        offsets[row] = end
        prefetch(data, np.int64(at[min(row + AHEAD, count - 1)]))
        if at[row] >= 0:
            bits[row >> 3] |= np.uint8(1 << (row & 7))
            value = (np.int64(kind[row]), np.int64(at[row]), np.int64(size[row]))
            end = put_value(data, value, out, end, levels)
    offsets[count] = end
    return offsets, out[:end], bits
