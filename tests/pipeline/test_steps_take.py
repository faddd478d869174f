"""Nested columns: items of chosen rows in a chosen order, with their own texts, codes, numbers and attributes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from lakerunner.model.signal import OVERFLOW
from lakerunner.pipeline.read.memory import PADDING
from lakerunner.pipeline.read.names import names_for, number_of
from lakerunner.pipeline.read.rows import (
    Attached,
    CodedColumn,
    Column,
    ListColumn,
    NumberColumn,
    StructColumn,
    TextColumn,
)
from lakerunner.pipeline.read.walk import INT, STRING, VALUE
from lakerunner.pipeline.steps.take import take

WORDS = b"zeroonetwothreekey\x05"
DATA = np.frombuffer(WORDS + bytes(PADDING), np.uint8)
AT, SIZE = np.array([0, 4, 7, 10], np.int32), np.array([4, 3, 3, 5], np.int32)
ORDER = np.array([3, 0, 2, 1, 0], np.int32)
FIRST = np.array([0, 2, 2, 3, 4], np.int32)  # rows of two, no, one and one item
FIELDS: dict[str, Column] = {
    "text": TextColumn(STRING, AT, SIZE),
    "code": CodedColumn(np.array([1, -1, 0, 1], np.int32), pa.array(["a", "b"])),
    "number": NumberColumn(np.array([10, 11, 12, 13], np.int64), np.array([True, True, False, True])),
}
KIND = pa.struct(
    [pa.field("number", pa.int64()), pa.field("text", pa.string()), pa.field("code", pa.string())],
)
ITEMS: list[dict[str, Any]] = [
    {"number": 10, "text": "zero", "code": "b"},
    {"number": 11, "text": "one", "code": None},
    {"number": None, "text": "two", "code": "a"},
    {"number": 13, "text": "three", "code": "b"},
]


def attached() -> Attached:
    """Item 1 has two attributes of the same key, item 3 has one."""
    keys = names_for(3)
    key = number_of(DATA, 15, 3, keys, -1)
    values = np.zeros(3, VALUE)
    values[:] = [(key, INT, 18, 1), (key, STRING, 0, 4), (key, STRING, 4, 3)]
    return Attached(values, keys, np.array([0, 0, 2, 2, 3], np.int32))


def checked(array: pa.Array) -> list[Any]:
    array.validate(full=True)
    found: list[Any] = array.to_pylist()
    return found


def test_lists_of_numbers() -> None:
    numbers = NumberColumn(np.array([1.5, 2.5, 3.5, 4.5]))
    kind = pa.list_(pa.float64())
    assert checked(take(ListColumn(FIRST, numbers), DATA, ORDER, kind)) == [[4.5], [1.5, 2.5], [3.5], None, [1.5, 2.5]]
    kept = ListColumn(FIRST, numbers, empty_is_null=False)
    assert checked(take(kept, DATA, ORDER, kind)) == [[4.5], [1.5, 2.5], [3.5], [], [1.5, 2.5]]
    nobody = np.array([1, 1], np.int32)
    assert checked(take(ListColumn(FIRST, numbers), DATA, nobody, kind)) == [None, None]
    assert checked(take(kept, DATA, nobody[:0], kind)) == []


def test_structs_stand_in_the_order_of_their_items() -> None:
    order = np.array([2, 0, 3], np.int32)
    assert checked(take(StructColumn(FIELDS), DATA, order, KIND)) == [ITEMS[2], ITEMS[0], ITEMS[3]]
    some = StructColumn(FIELDS, valid=np.array([True, True, False, True]))
    assert checked(take(some, DATA, order, KIND)) == [None, ITEMS[0], ITEMS[3]]


def test_lists_of_structs_with_attributes() -> None:
    kind = pa.list_(pa.struct([*KIND, pa.field("attributes", OVERFLOW)]))
    array = take(ListColumn(FIRST, StructColumn(FIELDS, attached())), DATA, ORDER, kind)
    maps = [[], [("key", "5"), ("key", '"zero"')], [], [("key", '"one"')]]
    items = [{**item, "attributes": pairs} for item, pairs in zip(ITEMS, maps, strict=True)]
    assert checked(array) == [items[3:], items[:2], items[2:3], None, items[:2]]


def test_lists_inside_structs_inside_lists() -> None:
    buckets = StructColumn({"counts": ListColumn(FIRST, NumberColumn(np.arange(4, dtype=np.uint64)))})
    kind = pa.list_(pa.struct([pa.field("counts", pa.list_(pa.uint64()))]))
    outer = ListColumn(np.array([0, 3, 4], np.int32), buckets)
    array = take(outer, DATA, np.array([1, 0], np.int32), kind)
    assert checked(array) == [[{"counts": [3]}], [{"counts": [0, 1]}, {"counts": None}, {"counts": [2]}]]
