"""The Parquet files as others read them: layout by pyarrow, contents by DuckDB."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import duckdb
import pyarrow.parquet as pq
import pytest

from pipeline.otlp_oracle import make, raw_of, request_type

START = 1_760_000_400_123_456_789
ROWS = 45_000


def trace_id(number: int) -> bytes:
    return random.Random(number).randbytes(16)


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    request = request_type()()
    chance = random.Random(1)
    for service in ("alpha", "beta", "gamma"):
        resource_logs = request.resource_logs.add()
        resource_logs.resource.attributes.add(key=b"service.name").value.string_value = service.encode()
        records = resource_logs.scope_logs.add().log_records
        for number in range(ROWS // 3):
            record = records.add(time_unix_nano=START + number, severity_number=9)
            record.observed_time_unix_nano = START
            record.body.string_value = b"message %d of %s" % (chance.randrange(10**9), service.encode())
            if number % 3:
                record.trace_id = trace_id(number)
            record.attributes.add(key=b"code").value.int_value = chance.choice([200, 404, 500])
            record.attributes.add(key=b"took").value.double_value = number / 7
            record.attributes.add(key=b"ok").value.bool_value = number % 2 == 0
            if number == 77:
                record.attributes.add(key=b"rare key").value.string_value = b"in the map"
    made, files = make(raw_of(request.SerializeToString()))
    assert made.failed == ()
    (data,) = files.values()
    path = tmp_path_factory.mktemp("segment") / "segment.parquet"
    path.write_bytes(data)
    return path


def test_the_layout(file: Path) -> None:
    metadata = pq.ParquetFile(file).metadata
    groups = [metadata.row_group(number) for number in range(metadata.num_row_groups)]
    assert [group.num_rows for group in groups] == [20_000, 20_000, 5_000]
    names = [groups[0].column(place).path_in_schema for place in range(groups[0].num_columns)]
    assert [names[column.column_index] for column in groups[0].sorting_columns] == ["service_name", "timestamp"]
    columns = {name: groups[0].column(place) for place, name in enumerate(names)}
    assert {column.compression for column in columns.values()} == {"ZSTD"}
    assert all(column.has_column_index and column.has_offset_index for column in columns.values())
    encodings = {name: set(column.encodings) for name, column in columns.items()}
    assert "DELTA_BINARY_PACKED" in encodings["timestamp"]
    assert "DELTA_LENGTH_BYTE_ARRAY" in encodings["message"]
    assert "BYTE_STREAM_SPLIT" in encodings["attributes.took"]
    assert "RLE_DICTIONARY" in encodings["service_name"]
    assert "RLE_DICTIONARY" in encodings["attributes.code"]


def test_statistics_are_those_of_the_row_group(file: Path) -> None:
    parquet = pq.ParquetFile(file)
    place = parquet.schema_arrow.names.index("service_name")
    found = [parquet.metadata.row_group(number).column(place).statistics for number in range(3)]
    assert [(stats.min, stats.max) for stats in found] == [("alpha", "beta"), ("beta", "gamma"), ("gamma", "gamma")]


def query(file: Path, sql: str) -> list[Any]:
    with duckdb.connect() as connection:
        return connection.execute(sql.replace("segment", f"'{file}'")).fetchall()


def test_duckdb_counts_and_sums(file: Path) -> None:
    took = sum(number / 7 for number in range(ROWS // 3)) * 3
    ((count, codes, total, ok),) = query(
        file,
        """select count(*), count(distinct "attributes.code"), sum("attributes.took"),
                  count(*) filter ("attributes.ok") from segment""",
    )
    assert (count, codes, ok) == (ROWS, 3, ROWS // 2)
    assert total == pytest.approx(took)
    services = query(file, "select service_name, count(*) from segment group by 1 order by 1")
    assert services == [("alpha", 15_000), ("beta", 15_000), ("gamma", 15_000)]


def test_duckdb_sees_nanoseconds(file: Path) -> None:
    described = dict(row[:2] for row in query(file, "describe select * from segment"))
    assert described["timestamp"] == described["observed_timestamp"] == "TIMESTAMP_NS"
    assert described["trace_id"] == "BLOB"
    assert described["attributes"] == "MAP(VARCHAR, VARCHAR)"
    ((first, last),) = query(file, "select epoch_ns(min(timestamp)), epoch_ns(max(timestamp)) from segment")
    assert (first, last) == (START, START + ROWS // 3 - 1)


def test_duckdb_reads_the_map(file: Path) -> None:
    found = query(file, "select service_name, attributes['rare key'] from segment where cardinality(attributes) > 0")
    assert sorted(found) == [(service, '"in the map"') for service in ("alpha", "beta", "gamma")]


def test_the_bloom_filter_finds_what_is_there_and_skips_what_is_not(file: Path) -> None:
    with duckdb.connect() as connection:
        for number in (1, 2, 7_000, 14_999):
            sought = [str(file), trace_id(number)]
            found = connection.execute("select count(*) from read_parquet(?) where trace_id = ?", sought).fetchone()
            assert found == (3 if number % 3 else 0,)
        probe = "select row_group_id, bloom_filter_excludes from parquet_bloom_probe(?, 'trace_id', ?)"
        absent = connection.execute(probe, [str(file), bytes(16)]).fetchall()
        assert absent == [(0, True), (1, True), (2, True)]
        present = connection.execute(probe, [str(file), trace_id(1)]).fetchall()
        assert (0, False) in present


def test_a_bloom_filter_works_where_ids_repeat(tmp_path: Path) -> None:
    """Such a column is dictionary-encoded."""
    request = request_type()()
    records = request.resource_logs.add().scope_logs.add().log_records
    for number in range(1000):
        records.add(time_unix_nano=START + number, trace_id=trace_id(number % 4))
    _, files = make(raw_of(request.SerializeToString()))
    (data,) = files.values()
    file = tmp_path / "segment.parquet"
    file.write_bytes(data)
    group = pq.ParquetFile(file).metadata.row_group(0)
    columns = {group.column(place).path_in_schema: group.column(place) for place in range(group.num_columns)}
    assert "RLE_DICTIONARY" in columns["trace_id"].encodings
    with duckdb.connect() as connection:
        count = "select count(*) from read_parquet(?) where trace_id = ?"
        assert connection.execute(count, [str(file), trace_id(3)]).fetchone() == (250,)
        probe = "select bloom_filter_excludes from parquet_bloom_probe(?, 'trace_id', ?)"
        assert connection.execute(probe, [str(file), bytes(16)]).fetchone() == (True,)
        assert connection.execute(probe, [str(file), trace_id(3)]).fetchone() == (False,)
