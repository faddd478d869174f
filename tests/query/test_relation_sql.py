"""A relation's rows come in the order of its segments, each from where it stands, whatever its file holds besides."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import duckdb
import pytest

from lakerunner.model.segment import Segment
from lakerunner.model.signal import Attribute
from lakerunner.model.time import ALL_TIME
from lakerunner.model.typed_json import Value
from lakerunner.plan.scan import Scan
from lakerunner.query.sandbox.instance import MACROS
from lakerunner.query.segment_cache.lease import NO_END, LeasedFile
from lakerunner.query.segment_cache.relation import Projections, relation_sql
from query.sample_lake import START, Lake, Record, Shred

KEY = Attribute("attributes", "k")
SCAN = Scan("s", "logs", ALL_TIME, ("message",), (KEY,))


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return Lake(tmp_path)


def sql_of(
    lake: Lake, scan: Scan, rows: Mapping[int, tuple[tuple[int, int], ...]] | None = None, *, steady: bool = True
) -> str:
    files = {s.id: LeasedFile(lake.store.root / s.path, (rows or {}).get(n)) for n, s in enumerate(lake.all)}
    return relation_sql(scan, lake.all, files, in_order=steady)


def rows_of(sql: str) -> list[tuple[object, ...]]:
    with duckdb.connect() as connection:
        for macro in MACROS:
            connection.execute(macro)
        return connection.execute(sql).fetchall()


def add(lake: Lake, number: int, value: Value, shred: Shred | None = None) -> Segment:
    return lake.add([Record(START, message=f"m{number}", attributes=(("k", value), ("other", 1)))], shred=shred)


def test_segments_that_differ_in_unused_columns_are_one_read(lake: Lake) -> None:
    for n, keys in enumerate(({}, {"other": "int64"}, {"a": "string"})):
        add(lake, n, "v", Shred(attributes={"k": "string", **keys}))
    assert sql_of(lake, SCAN).count("read_parquet") == 1
    assert rows_of(sql_of(lake, SCAN)) == [(f"m{n}", "v") for n in range(3)]
    assert [Projections(SCAN).stored(s) for s in lake.all] == [["message", "attributes.k", "attributes"]] * 3


def test_a_column_of_another_type_is_not_cast_to_its_neighbours(lake: Lake) -> None:
    """Integers and booleans become text by the same expression."""
    add(lake, 0, 7, Shred(attributes={"k": "int64"}))
    add(lake, 1, True, Shred(attributes={"k": "bool"}))
    add(lake, 2, "x")
    assert sql_of(lake, SCAN).count("read_parquet") == 3
    assert rows_of(sql_of(lake, SCAN)) == [("m0", "7"), ("m1", "true"), ("m2", "x")]


def test_names_that_differ_by_case_are_told_apart_in_every_file(lake: Lake) -> None:
    pairs = (("K", "upper"), ("k", "lower"))
    for number, keys in enumerate((("K", "k"), ("k",), ("K",), ("K", "k"))):
        record = Record(START, message=f"m{number}", attributes=pairs)
        lake.add([record], shred=Shred(attributes=dict.fromkeys(keys, "string")))
    both = replace(SCAN, attributes=(KEY, Attribute("attributes", "K")))
    assert rows_of(sql_of(lake, both)) == [(f"m{n}", "lower", "upper") for n in range(4)]


def test_the_order_is_that_of_the_segments_though_kinds_alternate(lake: Lake) -> None:
    for n in range(6):
        add(lake, n, str(n), Shred(attributes={"k": "string"}) if n % 2 else None)
    expected = [(f"m{n}", str(n)) for n in range(6)]
    assert rows_of(sql_of(lake, SCAN)) == expected
    one_row = {2: ((0, 1),), 3: ((0, 1),)}
    assert rows_of(sql_of(lake, SCAN, one_row)) == expected


def test_only_the_rows_that_are_held_are_read(lake: Lake) -> None:
    lake.add([Record(START + n, message=f"m{n}") for n in range(2500)])
    lake.add([Record(START, message="last")])
    scan = replace(SCAN, attributes=())
    found = rows_of(sql_of(lake, scan, {0: ((0, 10), (1000, 2000), (2499, 2500))}))
    assert found == [(f"m{n}",) for n in (*range(10), *range(1000, 2000), 2499)] + [("last",)]
    count = replace(scan, columns=())
    assert rows_of(f"SELECT count(*) FROM ({sql_of(lake, count, {0: ((0, 10),)})})") == [(11,)]


def test_files_of_which_the_same_rows_are_read_are_one_read(lake: Lake) -> None:
    """Neighbours, or any where the order does not matter; to the end is the same in files of all sizes."""
    for n, size in enumerate((3, 5, 4, 2)):
        lake.add([Record(START + row, message=f"m{n}.{row}") for row in range(size)])
    scan = replace(SCAN, attributes=())
    behind = ((1, NO_END),)
    rows = {0: behind, 1: behind, 2: ((0, 1), (2, NO_END)), 3: behind}
    assert sql_of(lake, scan, rows).count("read_parquet") == 3
    expected = ["m0.1", "m0.2", "m1.1", "m1.2", "m1.3", "m1.4", "m2.0", "m2.2", "m2.3", "m3.1"]
    assert rows_of(sql_of(lake, scan, rows)) == [(message,) for message in expected]
    loose = sql_of(lake, scan, rows, steady=False)
    assert loose.count("read_parquet") == 2
    assert sorted(rows_of(loose)) == [(message,) for message in expected]


def test_a_segment_without_a_file_has_no_rows(lake: Lake) -> None:
    first, second = add(lake, 0, "a"), add(lake, 1, "b")
    held = {second.id: LeasedFile(lake.store.root / second.path)}
    assert rows_of(relation_sql(SCAN, (first, second), held)) == [("m1", "b")]
    assert rows_of(relation_sql(SCAN, (first, second), {})) == []
