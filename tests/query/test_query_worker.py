"""A worker streams, keeps its limits, can be stopped, and gives back what it held however a query ends."""

from __future__ import annotations

import os
import resource
import threading
import time
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

from lakerunner.lakeql import compile_sql
from lakerunner.model.errors import Corrupt, TooLarge, UserError
from lakerunner.plan.operator import SqlRows
from lakerunner.plan.plan import Leaf
from lakerunner.query.sql import Question, SqlQueries
from lakerunner.query.unit import VERSION, Unit
from lakerunner.query.worker import QueryWorker
from query.sample_lake import NOW, OTHER, OWN, START, Lake, Record, answer_of, random_records

ENDLESS = "SELECT count(*) FROM range(1000000) a(x), range(1000000) b(y) WHERE x + y = -1"
SORTED = "SELECT a.x, b.y, md5((a.x + b.y)::VARCHAR) AS z FROM range(1200) a(x), range(1000) b(y) ORDER BY z"
LONG = "SELECT a.x, b.y FROM range(1000000) a(x), range(1000000) b(y)"


def unit(sql: str, lake: Lake) -> Unit:
    """The SQL as a leaf over all logs, which it may call scan_1."""
    plan = compile_sql("SELECT message FROM logs", OWN, NOW)
    (scan,) = plan.scans
    return Unit(OWN, Leaf(scan, SqlRows(sql)), lake.pick(OWN, "logs", scan.time).segments)


@pytest.fixture
def small(tmp_path: Path) -> Lake:
    lake = Lake(tmp_path)
    lake.add([Record(START + n, message=f"m{n}") for n in range(100)])
    return lake


def spill(lake: Lake) -> list[Path]:
    """Files that sandboxes wrote, or were given, and that are still there."""
    return [Path(directory, name) for directory, _, names in os.walk(lake.directory / "spill") for name in names]


def nothing_is_left(lake: Lake) -> bool:
    deadline = time.monotonic() + 60
    while spill(lake) and time.monotonic() < deadline:
        time.sleep(0.01)
    return spill(lake) == []


def test_rows_come_before_the_query_has_ended(small: Lake) -> None:
    answer = small.worker().run(unit(LONG, small))
    began = time.monotonic()
    first = next(iter(answer))
    assert first.num_rows > 0
    assert time.monotonic() - began < 60  # all of it would take hours
    answer.close()


def test_memory_stays_small_while_much_is_streamed(small: Lake) -> None:
    worker = small.worker(memory="200MB", max_rows=10_000_000)
    answer = worker.run(unit("SELECT a.x, b.y, 'some text ' || a.x FROM range(2000) a(x), range(2000) b(y)", small))
    batches = iter(answer)
    next(batches)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    assert sum(batch.num_rows for batch in batches) + 2048 >= 4_000_000
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 100_000  # KiB


@pytest.mark.parametrize("rows", [99, 100, 101])
def test_the_row_limit_is_exact(rows: int, small: Lake) -> None:
    engine = small.engine(max_rows=100)
    sql = f"SELECT * FROM range({rows}) t(x)"
    if rows <= 100:
        assert answer_of(engine, sql).num_rows == rows
        return
    with pytest.raises(TooLarge, match="more than 100 rows, limit query_max_rows: return fewer with LIMIT"):
        answer_of(engine, sql)
    assert answer_of(engine, f"{sql} LIMIT 100").num_rows == 100


def test_a_stream_past_the_limit_gives_rows_and_then_the_error(small: Lake) -> None:
    answer = small.worker(max_rows=10_000).run(unit(LONG, small))
    seen: list[int] = []
    with pytest.raises(TooLarge):
        seen.extend(batch.num_rows for batch in answer)
    assert 0 < sum(seen) <= 10_000


@pytest.mark.parametrize("sql", [ENDLESS, LONG])
def test_the_time_limit_stops_a_query(sql: str, small: Lake) -> None:
    engine = small.engine(seconds=0.5, max_rows=10**12)
    began = time.monotonic()
    with pytest.raises(UserError, match=r"stopped after 0.5 s: limit query_seconds"):
        for _ in engine.sql(OWN, Question(sql, NOW)):
            pass
    assert time.monotonic() - began < 60


def test_the_memory_limit_is_an_error_that_names_it(small: Lake) -> None:
    engine = small.engine(memory="50MB")
    with pytest.raises(TooLarge, match="query_memory 50MB"):
        answer_of(engine, "SELECT list(a.x || 'some longer text') FROM range(1000000) a(x), range(20) b(y)")
    assert answer_of(engine, "SELECT count(*) FROM logs").to_pydict() == {"count(*)": [100]}


@pytest.mark.parametrize("sql", [ENDLESS, LONG])
def test_close_from_another_thread_stops_it_soon(sql: str, small: Lake) -> None:
    answer = small.worker(max_rows=10**12).run(unit(sql, small))
    raised: list[BaseException] = []

    def read() -> None:
        try:
            for _ in answer:
                pass
        except UserError as error:
            raised.append(error)

    reader = threading.Thread(target=read)
    reader.start()
    time.sleep(0.3)
    began = time.monotonic()
    answer.close()
    reader.join(60)
    assert time.monotonic() - began < 30  # it would take hours
    assert [str(error) for error in raised] == ["the query was cancelled"]
    assert nothing_is_left(small)


def test_close_before_the_start_and_twice(small: Lake) -> None:
    answer = small.worker().run(unit("SELECT 1 AS x", small))
    answer.close()
    answer.close()
    with pytest.raises(UserError, match="cancelled"):
        list(answer)


def test_segments_are_let_go_however_a_query_ends(small: Lake) -> None:
    worker = small.worker(max_rows=50)
    done = worker.run(unit("SELECT message FROM scan_1 LIMIT 50", small))
    assert done.schema.names == ["message"]
    assert worker.cache.held == 1
    list(done)
    assert worker.cache.held == 0
    with pytest.raises(TooLarge):
        list(worker.run(unit("SELECT message FROM scan_1", small)))
    assert worker.cache.held == 0
    with pytest.raises(UserError, match="Could not convert"):
        list(worker.run(unit("SELECT message::INTEGER FROM scan_1", small)))
    assert worker.cache.held == 0
    left = worker.run(unit("SELECT message FROM scan_1 LIMIT 1", small))
    next(iter(left))
    left.close()
    assert worker.cache.held == 0


@pytest.mark.parametrize(
    ("sql", "said"),
    [
        ("SELECT message::INTEGER FROM logs", "Could not convert string 'm0' to INT32"),
        ("SELECT ('/api/' || message)::INTEGER FROM logs", "Could not convert string '/api/m0' to INT32"),
        ("SELECT sum(message) FROM logs", r"sum does not take VARCHAR: cast its arguments \(line 1, column 8\)"),
        (
            "SELECT message FROM logs GROUP BY service_name",
            r"message must be in GROUP BY or in an aggregate, such as any_value\(message\) \(line 1, column 8\)",
        ),
        ("SELECT message > 1 AND timestamp > 1 FROM logs", "cannot be compared"),
        ("SELECT 9223372036854775807 + 1", "Overflow"),
        ("SELECT regexp_matches(message, '(') FROM logs", "missing"),
    ],
)
def test_what_duckdb_says_reaches_the_user_without_paths(sql: str, said: str, small: Lake) -> None:
    with pytest.raises(UserError, match=said) as raised:
        answer_of(small.engine(), sql)
    assert str(small.directory) not in str(raised.value)
    assert "LINE" not in str(raised.value)


def test_a_damaged_segment_is_corrupt_and_its_path_is_not_shown(small: Lake) -> None:
    segment = small.all[0]
    data = bytearray(small.store.get(segment.path, max_bytes=segment.bytes))
    data[-8:] = b"\0" * 8
    small.store.put(segment.path, bytes(data))
    with pytest.raises((Corrupt, UserError)) as raised:
        answer_of(small.engine(), "SELECT message FROM logs")
    assert str(small.directory) not in str(raised.value)


def test_names_are_unique(small: Lake) -> None:
    answer = answer_of(small.engine(), "SELECT 1 AS a, 2 AS a, 3 AS a_1, 4 AS a")
    assert answer.to_pydict() == {"a": [1], "a_2": [2], "a_1": [3], "a_3": [4]}


def test_answers_are_typed_as_documented(engine: SqlQueries) -> None:
    sql = (
        "SELECT timestamp, sum(fingerprint) AS s, count(*) AS n, fingerprint, organization_id, attributes, "
        "now() AS now, 1.5 AS d FROM logs GROUP BY ALL LIMIT 0"
    )
    schema = answer_of(engine, sql).schema
    assert [
        str(schema.field(name).type) for name in ("timestamp", "s", "n", "fingerprint", "organization_id", "now", "d")
    ] == [
        "timestamp[ns]",
        "decimal128(38, 0)",
        "int64",
        "int64",
        "string",
        "timestamp[us]",
        "decimal128(2, 1)",
    ]
    assert pa.types.is_map(schema.field("attributes").type)


def test_no_segments_still_answer(tmp_path: Path) -> None:
    engine = Lake(tmp_path).engine()
    assert answer_of(engine, "SELECT count(*) AS n, max(timestamp) AS t FROM logs").to_pydict() == {
        "n": [0],
        "t": [None],
    }
    empty = answer_of(engine, "SELECT *, attributes['k'] AS k FROM logs WHERE trace_id = 'AB'")
    assert empty.num_rows == 0
    assert empty.schema.names[:3] == ["timestamp", "observed_timestamp", "organization_id"]
    assert str(empty.schema.field("attributes").type) == "map<string, string>"


def test_a_query_without_a_table_runs(tmp_path: Path) -> None:
    assert answer_of(Lake(tmp_path).engine(), "SELECT 1 + 1 AS two").to_pydict() == {"two": [2]}


def test_spill_of_dead_processes_is_removed_and_live_ones_stay(small: Lake) -> None:
    directory = small.directory / "spill"
    for name in ("999999999-0", "1-0", "not-ours"):
        (directory / name).mkdir(parents=True)
    small.worker()
    assert sorted(path.name for path in directory.iterdir()) == ["1-0", "not-ours"]


def test_a_query_spills_within_its_directory_and_leaves_nothing(small: Lake) -> None:
    worker = small.worker(memory="60MB", max_rows=10_000_000)
    answer = worker.run(unit(SORTED, small))
    batches = iter(answer)
    rows = next(batches).num_rows
    assert spill(small) != []
    assert rows + sum(batch.num_rows for batch in batches) == 1_200_000
    assert nothing_is_left(small)


def test_spill_has_a_limit_too(small: Lake) -> None:
    engine = small.engine(memory="60MB", max_rows=10_000_000, spill_max="1MB")
    with pytest.raises(TooLarge, match="query_memory 60MB"):
        answer_of(engine, SORTED)


def test_queries_run_side_by_side(lake: Lake) -> None:
    engine = lake.engine()
    results: list[int] = []

    def ask() -> None:
        results.append(answer_of(engine, "SELECT count(*) AS n FROM logs").to_pydict()["n"][0])

    threads = [threading.Thread(target=ask) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert results == [len(lake.records)] * 6


class TestIsolation:
    """Another organization's segments cannot be reached, whatever is asked and whoever asks it."""

    def test_each_organization_sees_its_own(self, lake: Lake, engine: SqlQueries) -> None:
        own = answer_of(engine, "SELECT organization_id, count(*) AS n FROM logs GROUP BY 1")
        assert own.to_pydict() == {"organization_id": [str(OWN)], "n": [len(lake.records)]}
        other = answer_of(engine, "SELECT organization_id, count(*) AS n FROM logs GROUP BY 1", organization=OTHER)
        assert other.to_pydict() == {"organization_id": [str(OTHER)], "n": [100]}

    def test_a_unit_cannot_mix_organizations(self, lake: Lake) -> None:
        (scan,) = compile_sql("SELECT 1 FROM logs", OWN, NOW).scans
        with pytest.raises(ValueError, match=f"is not one of organization {OWN}"):
            Unit(OWN, Leaf(scan, SqlRows("SELECT 1")), tuple(lake.all))
        honest = Unit(OTHER, Leaf(scan, SqlRows("SELECT 1")), (lake.all[-1],)).to_bytes()
        start = f'{{"version":{VERSION},"organization":"'
        forged = honest.replace(f"{start}{OTHER}".encode(), f"{start}{OWN}".encode())
        assert forged != honest
        with pytest.raises(Corrupt, match="not one of organization"):
            Unit.from_bytes(forged)

    @pytest.mark.parametrize(
        "sql",
        [
            "SELECT * FROM read_parquet('{other}')",
            "SELECT * FROM '{other}'",
            'SELECT * FROM "{other}"',
            "SELECT * FROM scan_1 UNION ALL SELECT message FROM '{other}'",
            "SELECT (SELECT count(*) FROM read_parquet('{other}'))",
            "SELECT * FROM parquet_metadata('{other}')",
            "SELECT * FROM read_blob('{other}')",
            "SELECT * FROM glob('{directory}/*')",
            "SELECT * FROM duckdb_views()",
            "SELECT * FROM duckdb_settings()",
            "SELECT current_setting('allowed_paths')",
            "SELECT * FROM query('SELECT 1')",
            "SELECT * FROM information_schema.tables",
            "SELECT * FROM main.scan_1",
            "SELECT * FROM memory.main.scan_1",
            "SELECT main.upper('x')",
            "SELECT getvariable('x')",
            "SET lock_configuration = false",
            "SET allowed_paths = []",
            "COPY scan_1 TO '{directory}/out.csv'",
            "CREATE TABLE x AS SELECT 1",
            "CREATE OR REPLACE TEMP VIEW scan_1 AS SELECT 1",
            "SELECT 1; SELECT 2",
            "PRAGMA database_list",
            "INSTALL httpfs",
            "WITH x AS (INSERT INTO scan_1 VALUES (1) RETURNING *) SELECT * FROM x",
            "WITH RECURSIVE r AS (SELECT 1 AS n UNION ALL SELECT n FROM r) SELECT * FROM r",
            "SUMMARIZE scan_1",
            "SELECT * FROM (DESCRIBE scan_1)",
            "PIVOT scan_1 ON message USING count(*)",
            "SELECT * FROM scan_1 TABLESAMPLE 10%",
            "FROM lake",
        ],
    )
    def test_sql_that_never_went_through_the_compiler_is_refused_too(self, sql: str, lake: Lake) -> None:
        """As if a unit were forged, or the two parsers differed: DuckDB's own reading is checked."""
        worker = lake.worker()
        assert answer_of(lake.engine(worker), "SELECT count(*) AS n FROM logs", organization=OTHER).num_rows == 1
        (foreign,) = [path for path in (lake.directory / "cache").iterdir() if path.name.startswith(str(OTHER))]
        honest = unit("SELECT message FROM scan_1", lake)
        forged = replace(
            honest, leaf=replace(honest.leaf, operator=SqlRows(sql.format(other=foreign, directory=foreign.parent)))
        )
        with pytest.raises(UserError, match="cannot be run"):
            list(worker.run(forged))


def test_a_larger_lake_is_read_in_parallel_fetches(tmp_path: Path) -> None:
    lake = Lake(tmp_path)
    for n in range(20):
        lake.add(random_records(20, n, START))
    worker: QueryWorker = lake.worker()
    assert answer_of(lake.engine(worker), "SELECT count(*) AS n FROM logs").to_pydict() == {"n": [400]}
