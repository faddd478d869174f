"""Which attributes become columns, in which type, and where the others go."""

from __future__ import annotations

import io
from collections.abc import Iterable
from typing import Any

import pyarrow.parquet as pq
import pytest

from lakerunner.model.segment import Column
from lakerunner.model.signal import LOGS
from lakerunner.model.typed_json import encode_value
from lakerunner.pipeline.steps import layout
from pipeline.otlp_oracle import actual, assert_same, decoded, expected, make, raw_of, request_type

Pairs = list[tuple[str, Any]]


def set_pairs(pairs: Any, drawn: Iterable[tuple[str, Any]]) -> None:
    for key, value in drawn:
        pair = pairs.add(key=key.encode())
        match value:
            case bool():
                pair.value.bool_value = value
            case int():
                pair.value.int_value = value
            case float():
                pair.value.double_value = value
            case str():
                pair.value.string_value = value.encode()
            case bytes():
                pair.value.bytes_value = value
            case list():
                pair.value.array_value.SetInParent()
                for item in value:
                    pair.value.array_value.values.add(int_value=item)
            case dict():
                pair.value.kvlist_value.SetInParent()
                set_pairs(pair.value.kvlist_value.values, list(value.items()))


def segment_of(
    records: list[Pairs], resource: Iterable[tuple[str, Any]] = (), scope: Iterable[tuple[str, Any]] = ()
) -> tuple[dict[str, str], list[Any]]:
    """(type by shredded column, rows) of records with these attributes, after comparing them with what was sent."""
    request = request_type()()
    resource_logs = request.resource_logs.add()
    set_pairs(resource_logs.resource.attributes, resource)
    scope_logs = resource_logs.scope_logs.add()
    set_pairs(scope_logs.scope.attributes, scope)
    for number, pairs in enumerate(records):
        record = scope_logs.log_records.add(time_unix_nano=number + 1)
        set_pairs(record.attributes, pairs)
    data = request.SerializeToString()
    made, files = make(raw_of(data))
    rows = actual(made.segments, files)
    assert_same(rows, expected([decoded(data)]))
    (segment,) = made.segments
    shredded = tuple(column for column in segment.columns if column.type)
    assert shredded == tuple(sorted(shredded)) == segment.columns[len(segment.columns) - len(shredded) :]
    assert {column.name for column in segment.columns if not column.type} <= set(LOGS.schema.names)
    return {column.name: column.type for column in shredded}, in_maps(files)


def in_maps(files: dict[str, bytes]) -> list[Any]:
    """The map column of the attributes, as it stands in the file."""
    (file,) = files.values()
    return pq.read_table(io.BytesIO(file), columns=["attributes"]).column("attributes").to_pylist()


def test_every_type_has_its_column() -> None:
    pairs: Pairs = [("s", "x"), ("i", -5), ("d", -0.0), ("b", True), ("y", b"\x00"), ("a", [1]), ("k", {"x": 1})]
    columns, maps = segment_of([pairs, pairs])
    assert columns == {
        "attributes.a": "json",
        "attributes.b": "bool",
        "attributes.d": "double",
        "attributes.i": "int64",
        "attributes.k": "json",
        "attributes.s": "string",
        "attributes.y": "bytes",
    }
    assert maps == [[], []]


def test_the_most_frequent_type_wins_and_the_others_go_to_the_map() -> None:
    columns, maps = segment_of([[("code", 1)], [("code", "1")], [("code", 2)], [("code", None)], [("code", 1.0)]])
    assert columns == {"attributes.code": "int64"}
    assert maps == [[], [("code", '"1"')], [], [("code", "null")], [("code", "1.0")]]


def test_arrays_and_kvlists_are_two_types() -> None:
    columns, maps = segment_of([[("v", {})], [("v", {"a": 1})], [("v", [])]])
    assert columns == {"attributes.v": "json"}
    assert maps == [[], [], [("v", "[]")]]


def test_a_key_without_any_value_gets_no_column() -> None:
    columns, maps = segment_of([[("empty", None)]])
    assert (columns, maps) == ({}, [[("empty", "null")]])


def test_of_equal_keys_only_the_first_goes_to_the_column() -> None:
    columns, maps = segment_of([[("k", 1), ("k", 2), ("k", "x"), ("k", 3)], [("k", "y"), ("k", 4)], [("k", 5)]])
    assert columns == {"attributes.k": "int64"}
    assert maps == [[("k", "2"), ("k", '"x"'), ("k", "3")], [("k", '"y"'), ("k", "4")], []]


def test_rare_keys_of_records_stay_in_the_map() -> None:
    records: list[Pairs] = [[("common", number)] for number in range(1000)]
    for number in range(5):
        records[number].append(("five", number))
    for number in range(4):
        records[number].append(("four", number))
    columns, maps = segment_of(records)
    assert set(columns) == {"attributes.common", "attributes.five"}
    assert maps[:5] == [[("four", "0")], [("four", "1")], [("four", "2")], [("four", "3")], []]


def test_keys_of_resources_and_scopes_are_never_too_rare() -> None:
    columns, _ = segment_of([[]], [("service.name", "cart"), ("pid", 7)], [("lib", True)])
    assert columns == {"resource.pid": "int64", "resource.service.name": "string", "scope.lib": "bool"}


def test_there_are_256_columns_at_most_the_most_frequent() -> None:
    keys = [f"k{number:03}" for number in range(300)]
    often = keys[::-1][:100]
    columns, _ = segment_of([[(key, 1) for key in keys], [(key, 1) for key in often]])
    kept = sorted([*often, *keys[:156]])
    assert list(columns) == [f"attributes.{key}" for key in kept]


def test_keys_that_differ_in_case_only_share_no_column_name() -> None:
    columns, maps = segment_of([[("userId", 1), ("UserID", 2)], [("userId", 3)]])
    assert columns == {"attributes.userId": "int64"}
    assert maps == [[("UserID", "2")], []]


def test_keys_that_cannot_name_a_column_stay_in_the_map() -> None:
    strange = ["x" * 257, "nul\0", "key_value.key", "key_value.value"]
    columns, maps = segment_of([[(key, 1) for key in strange] + [("x" * 256, 1), ("", 1), ("key_value", 1)]])
    assert set(columns) == {"attributes." + "x" * 256, "attributes.", "attributes.key_value"}
    assert maps == [[(key, "1") for key in strange]]


@pytest.mark.parametrize("most_owners", [layout.MAX_OWNERS, 2])
def test_resources_and_scopes_overflow_into_their_maps(most_owners: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same whether there are few owners or so many that they are placed like rows."""
    monkeypatch.setattr(layout, "MAX_OWNERS", most_owners)
    request = request_type()()
    for number in range(3):
        resource_logs = request.resource_logs.add()
        pairs: Pairs = [("k", number if number else "zero"), ("k", "again")]
        set_pairs(resource_logs.resource.attributes, pairs)
        scope_logs = resource_logs.scope_logs.add()
        set_pairs(scope_logs.scope.attributes, pairs)
        for _ in range(2):
            scope_logs.log_records.add(time_unix_nano=number + 1)
    data = request.SerializeToString()
    made, files = make(raw_of(data))
    rows = actual(made.segments, files)
    assert_same(rows, expected([decoded(data)]))
    assert Column("resource.k", "int64") in made.segments[0].columns
    assert rows[0]["resource_attributes"] == {"k": [encode_value("zero"), encode_value("again")]}
    assert rows[2]["scope_attributes"] == {"k": [encode_value(1), encode_value("again")]}
