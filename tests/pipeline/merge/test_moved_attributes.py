"""Attributes move between columns and map as if they were moved row by row."""

from __future__ import annotations

import math
import random
from collections.abc import Mapping
from typing import Any

import pyarrow as pa
import pytest

from lakerunner.model.errors import Corrupt
from lakerunner.model.signal import OVERFLOW
from lakerunner.model.typed_json import KeyValues, Value, decode_value, encode_value
from lakerunner.pipeline.merge.unify import move_attributes
from lakerunner.pipeline.read.walk import ARRAY, BOOL, BYTES, DOUBLE, INT, KVLIST, NULL, STRING
from lakerunner.pipeline.steps.arrow_columns import plain
from lakerunner.pipeline.steps.shred import COLUMN_TYPES

VALUES: Mapping[int, tuple[Value, ...]] = {
    STRING: ("", "a", 'a "quote"', "back\\slash", "ä\nö", "\x01", "\x7f", '"'),
    BOOL: (True, False),
    INT: (0, -5, 2**63 - 1, -(2**63)),
    DOUBLE: (0.0, -0.0, 1.5, 1e300, 42.0, math.inf, -math.inf, math.nan),
    BYTES: (b"", b"\0x"),
    ARRAY: ((), (1, "x")),
    KVLIST: (KeyValues(()), KeyValues((("bytesValue", "eA=="),))),
    NULL: (None,),
}
KINDS = tuple(COLUMN_TYPES)


def kind(value: Value) -> int:
    kinds = {str: STRING, bool: BOOL, int: INT, float: DOUBLE, bytes: BYTES, tuple: ARRAY, KeyValues: KVLIST}
    return kinds.get(type(value), NULL)


def stored(value: Value) -> Any:
    """As a column has it."""
    return encode_value(value) if kind(value) in (ARRAY, KVLIST) else value


def column(chance: random.Random, of_kind: int, rows: int) -> pa.Array:
    values = [stored(chance.choice(VALUES[of_kind])) if chance.random() < 0.6 else None for _ in range(rows)]
    array = pa.array(values, COLUMN_TYPES[of_kind][1])
    return array.dictionary_encode() if of_kind in (STRING, BYTES) and chance.random() < 0.5 else array


def row_by_row(
    maps: list[Any], given: dict[str, list[Any]], given_kinds: Mapping[str, int], kinds: Mapping[str, int]
) -> tuple[list[Any], dict[str, list[Any]]]:
    columns: dict[str, list[Any]] = {key: [None] * len(maps) for key in kinds}
    for number, pairs in enumerate(maps):
        for key in sorted(given, reverse=True):
            value = given[key][number]
            if value is None:
                continue
            if kinds.get(key) == given_kinds[key]:
                columns[key][number] = value
            else:
                pairs.insert(0, (key, value if given_kinds[key] in (ARRAY, KVLIST) else encode_value(value)))
        for key, wanted in kinds.items():
            first = next((pair for pair in pairs if pair[0] == key), None)
            if first is not None and columns[key][number] is None and kind(decode_value(first[1])) == wanted:
                pairs.remove(first)
                columns[key][number] = stored(decode_value(first[1]))
    return maps, columns


def test_they_are_where_moving_them_one_by_one_puts_them() -> None:
    moved = 0
    for seed in range(300):
        chance = random.Random(seed)
        rows = chance.randint(1, 12)
        given_kinds = {key: chance.choice(KINDS) for key in "abcd" if chance.random() < 0.5}
        kinds = {key: chance.choice((given_kinds.get(key, INT), *KINDS)) for key in "abcde" if chance.random() < 0.7}
        given = {key: column(chance, of_kind, rows) for key, of_kind in given_kinds.items()}
        pairs = [
            [
                (chance.choice("abcdez"), encode_value(chance.choice(VALUES[chance.choice((*KINDS, NULL))])))
                for _ in range(chance.randint(0, 5))
            ]
            for _ in range(rows + 1)
        ]
        maps = pa.array(pairs, OVERFLOW).slice(1)
        wanted_maps, wanted = row_by_row(
            maps.to_pylist(), {key: plain(array).to_pylist() for key, array in given.items()}, given_kinds, kinds
        )
        found_maps, found = move_attributes(maps, given, given_kinds, kinds)
        found_maps.validate(full=True)
        assert found_maps.type == OVERFLOW
        assert found_maps.to_pylist() == wanted_maps
        for key, of_kind in kinds.items():
            values = plain(found[key]).to_pylist() if key in found else [None] * rows
            assert list(map(repr, values)) == list(map(repr, wanted[key]))
            assert key not in found or plain(found[key]).type == COLUMN_TYPES[of_kind][1]
        moved += found_maps.to_pylist() != maps.to_pylist()
    assert moved > 100


@pytest.mark.parametrize("text", ['"a', '"a"b"', '"a\nb"', '"a\\x"'])
def test_a_text_that_is_no_typed_json_is_refused(text: str) -> None:
    with pytest.raises(Corrupt):
        move_attributes(pa.array([[("k", text)]], OVERFLOW), {}, {}, {"k": STRING})
