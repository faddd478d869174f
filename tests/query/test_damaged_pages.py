"""SQL over segments of which a byte was changed: refused by name, or the same answer; what is not damaged is read."""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import duckdb
import httpx
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest

from lakerunner.model.condition import Contains
from lakerunner.model.errors import Corrupt
from lakerunner.model.organization import Organization
from lakerunner.model.segment import Segment
from lakerunner.model.signal import METRICS
from lakerunner.model.source import SourceObject
from lakerunner.model.time import ALL_TIME
from lakerunner.objects.local import LocalStore
from lakerunner.pipeline.make_segments import make_segments
from lakerunner.pipeline.read.rows import Raw
from lakerunner.plan.scan import Scan, id_column
from lakerunner.query.segment_cache.cache import SegmentCache
from lakerunner.query.segment_cache.footers import TRAILER, read_footer
from lakerunner.query.segment_cache.pages import check_pages, pages_of
from lakerunner.query.segment_cache.spans import Span
from lakerunner.query.sql import Question
from lakerunner.query.worker import QueryWorker
from query.real_lake import Asking, RealLake, some_records
from query.sample_lake import NOW, OWN, START, Elsewhere, Lake, Record
from suites.scripted import events_of, sql_server

Store = type[LocalStore]
STORES = (LocalStore, Elsewhere)  # files are linked, or fetched
SPANS = "SELECT count(DISTINCT span_id) AS n, max(span_id) AS last FROM logs"


def chunk_of(path: Path, column: str, group: int = 0) -> Span:
    return read_footer(path, "key").chunks(column)[group][0]


def flipped(path: Path, at: int, by: int = 0x01) -> None:
    """In place, with the file's times as they were."""
    times = path.stat()
    with path.open("r+b") as file:
        file.seek(at)
        byte = file.read(1)[0]
        file.seek(at)
        file.write(bytes([byte ^ by]))
    os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))


@pytest.fixture(params=STORES)
def lake(tmp_path: Path, request: pytest.FixtureRequest) -> Lake:
    """Three segments of ids that no packing makes smaller: they are stored as they are."""
    lake = Lake(tmp_path)
    lake.store = request.param(tmp_path / "store")
    chance = random.Random(7)
    for hour in range(3):
        lake.add(
            [
                Record(START + hour * 10**9 + n, message=f"m{n}", span_id=chance.randbytes(8), fingerprint=n)
                for n in range(2500)
            ]
        )
    return lake


def file_of(lake: Lake, segment: Segment) -> Path:
    return lake.store.root / segment.path


def damage(lake: Lake, segment: Segment, column: str = "span_id", group: int = 1) -> str:
    """Behind the middle of a chunk. What is said of it."""
    path = file_of(lake, segment)
    first, end = chunk_of(path, column, group)
    flipped(path, (first + end) // 2)
    return f"{segment.path} is damaged in column {column}, row group {group}: page checksum mismatch at byte"


def asked(lake: Lake, sql: str, **given: bool) -> tuple[list[dict[str, object]], object]:
    answer = lake.engine().sql(OWN, Question(sql, NOW, **given))  # type: ignore[arg-type]
    rows = [row for batch in answer for row in batch.to_pylist()]
    return rows, answer.account


def test_duckdb_alone_answers_with_other_numbers(lake: Lake) -> None:
    """Why pages are checked."""
    path = file_of(lake, lake.all[1])
    sql = f"SELECT md5(string_agg(hex(span_id), '')) FROM read_parquet('{path}')"
    before = duckdb.execute(sql).fetchall()
    damage(lake, lake.all[1])
    assert duckdb.execute(sql).fetchall() != before


def test_a_damaged_page_is_refused_by_name(lake: Lake) -> None:
    said = damage(lake, lake.all[1])
    with pytest.raises(Corrupt) as raised:
        asked(lake, SPANS)
    assert str(raised.value).startswith(said)
    assert str(raised.value).endswith("Run `lakerunner fsck --deep` to find other damage and how to repair it")
    assert str(lake.directory) not in str(raised.value)


def test_what_is_not_damaged_is_answered(lake: Lake) -> None:
    damage(lake, lake.all[1])
    rows, _ = asked(lake, "SELECT count(*) AS n, sum(fingerprint) AS s, min(message) AS m FROM logs")
    assert rows == [{"n": 7500, "s": 3 * sum(range(2500)), "m": "m0"}]
    second = f"SELECT count(span_id) AS n FROM logs WHERE timestamp >= make_timestamp_ns({START + 2 * 10**9})"
    assert asked(lake, second)[0] == [{"n": 2500}]


def test_row_groups_that_are_not_read_are_not_looked_at(tmp_path: Path) -> None:
    """Of a file with holes."""
    real = RealLake(tmp_path)
    segment = real.add(lambda request: some_records(request, 8000, 1))
    path = real.store.root / segment.path
    first, end = chunk_of(path, "trace_id", 9)
    flipped(path, (first + end) // 2)
    asking = Asking(real.cache(), tmp_path)
    scan = Scan("s", "logs", ALL_TIME, ("service_name",), ids=("trace_id",))
    sql = f'SELECT count("{id_column("s", "trace_id")}") AS n FROM s'
    with pytest.raises(Corrupt, match="in column trace_id, row group 9"):
        asking.ask(scan, sql, [segment])
    narrow = replace(scan, conditions=(Contains("message", "cart-17 "),))
    assert asking.ask(narrow, sql, [segment])[1].row_groups_pruned
    assert asking.ask(narrow, sql, [segment])[0].column("n")[0].as_py() > 0


def test_a_partial_answer_leaves_the_segment_out_and_says_so(lake: Lake) -> None:
    said = damage(lake, lake.all[1])
    rows, account = asked(lake, SPANS.replace(", max(span_id) AS last", ""), partial=True)
    assert rows == [{"n": 5000}]
    (missing,) = account.missing  # type: ignore[attr-defined]
    assert (missing.segments, missing.time) == (1, lake.all[1].time)
    assert missing.reason.startswith(said)


def test_it_is_told_over_http_and_in_events(lake: Lake) -> None:
    said = damage(lake, lake.all[1])
    with sql_server(lake.engine(), Organization(OWN, "own"), lambda: NOW) as url:
        body = {"query": SPANS, "format": "json"}
        refused = httpx.post(f"{url}/api/v1/sql", json=body, timeout=60)
        assert (refused.status_code, refused.json()["error"]["kind"]) == (422, "Corrupt")
        assert refused.json()["error"]["message"].startswith(said)
        events = events_of(httpx.post(f"{url}/api/v1/sql", json=body | {"format": "sse", "partial": False}, timeout=60))
        assert (events[-1]["type"], events[-1]["error"]["kind"]) == ("error", "Corrupt")
        assert events[-1]["error"]["message"].startswith(said)
        done = events_of(httpx.post(f"{url}/api/v1/sql", json=body | {"format": "sse"}, timeout=60))[-1]
    assert (done["type"], done["complete"]) == ("done", False)
    assert [one["segments"] for one in done["missing"]] == [1]


def test_what_was_mended_is_read_again(lake: Lake) -> None:
    """By the same worker. The store's own file, which may be linked, is never written to, whoever else holds it."""
    segment = lake.all[1]
    path = file_of(lake, segment)
    whole = path.read_bytes()
    cache = SegmentCache(lake.store, lake.directory / "mended", 1 << 30)
    engine = lake.engine(QueryWorker(cache, lake.sandboxes()))

    def ask(sql: str) -> list[dict[str, object]]:
        return [row for batch in engine.sql(OWN, Question(sql, NOW)) for row in batch.to_pylist()]

    damage(lake, segment)
    damaged = path.read_bytes()
    with cache.hold(Scan("s", "logs", ALL_TIME, ("message",)), lake.all):
        with pytest.raises(Corrupt):
            ask(SPANS)
        assert ask(f"SELECT max(fingerprint) AS f FROM logs WHERE trace_id = '{'0' * 32}' OR true") == [{"f": 2499}]
        assert path.read_bytes() == damaged
    lake.store.put(segment.path, whole)
    assert ask("SELECT count(DISTINCT span_id) AS n FROM logs") == [{"n": 7500}]


def test_what_was_damaged_on_the_workers_own_disk_is_fetched_anew(tmp_path: Path) -> None:
    """Here between two runs: files that were whole are taken over."""
    lake = Lake(tmp_path)
    segment = lake.add([Record(START + n, span_id=random.Random(n).randbytes(8)) for n in range(1000)])
    scan = Scan("s", "logs", ALL_TIME, (), ids=("span_id",))
    cache = SegmentCache(lake.store, tmp_path / "cache", 1 << 30)
    with cache.hold(scan, [segment]) as held:
        cached = held.files[segment.id].path
    cache.close()
    assert (cached.parent / "whole" / cached.name).exists()
    first, end = chunk_of(cached, "span_id")
    flipped(cached, (first + end) // 2)
    asking = Asking(SegmentCache(lake.store, tmp_path / "cache", 1 << 30), tmp_path)
    found, account = asking.ask(scan, f'SELECT max("{id_column("s", "span_id")}") AS m FROM s', [segment])
    assert found.column("m")[0].as_py() == max(record.span_id or b"" for record, _ in lake.records)
    assert account.bytes_fetched == segment.bytes
    assert cached.read_bytes() == file_of(lake, segment).read_bytes()


def test_a_file_of_the_store_that_is_written_to_is_looked_at_again(tmp_path: Path) -> None:
    lake = Lake(tmp_path)
    lake.store = LocalStore(tmp_path / "store")  # type: ignore[assignment]
    segment = lake.add([Record(START + n, span_id=random.Random(n).randbytes(8)) for n in range(1000)])
    worker = lake.worker()
    list(lake.engine(worker).sql(OWN, Question(SPANS, NOW)))
    path = file_of(lake, segment)
    damage(lake, segment, group=0)
    os.utime(path)
    with pytest.raises(Corrupt, match="in column span_id, row group 0"):
        list(lake.engine(worker).sql(OWN, Question(SPANS, NOW)))


@pytest.fixture
def checks(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The columns of the chunks that were checked, in order."""
    from lakerunner.query.segment_cache import pages

    seen: list[str] = []

    def noted(data: bytes, chunk: pq.ColumnChunkMetaData, footer: bytes) -> None:
        seen.append(chunk.path_in_schema)
        check_pages(data, chunk, footer)

    monkeypatch.setattr(pages, "check_pages", noted)
    return seen


def test_a_chunk_is_checked_once(lake: Lake, checks: list[str]) -> None:
    worker = lake.worker()

    def ask(sql: str) -> list[str]:
        checks.clear()
        list(lake.engine(worker).sql(OWN, Question(sql, NOW)))
        return sorted(set(checks))

    assert ask("SELECT max(span_id) FROM logs") == ["span_id"]
    assert len(checks) == 9
    assert ask("SELECT max(span_id), max(message) FROM logs") == ["message"]
    assert len(checks) == 9
    assert ask("SELECT min(span_id), min(message) FROM logs") == []
    assert ask("SELECT count(*) FROM logs") == []


# Any byte


def log_segment(directory: Path) -> tuple[Segment, LocalStore]:
    lake = RealLake(directory)
    return lake.add(lambda request: some_records(request, 600, 3), group_bytes=60_000), lake.store


def metric_segment(directory: Path) -> tuple[Segment, LocalStore]:
    chance = random.Random(5)
    request = ExportMetricsServiceRequest()
    metrics = request.resource_metrics.add().scope_metrics.add().metrics
    for name in range(5):
        points = metrics.add(name=f"m{name}").gauge.data_points
        for n in range(60):
            point = points.add(time_unix_nano=START + n * 10**9 + chance.randrange(10**6), as_double=chance.random())
            point.attributes.add(key="host").value.string_value = f"h{n % 3}"
            if n % 9 == 0:
                point.exemplars.add(time_unix_nano=START + n, as_double=1.5, trace_id=chance.randbytes(16))
    store = Elsewhere(directory / "store")
    store.root.mkdir(parents=True)
    data = request.SerializeToString()
    raw = Raw(SourceObject("b", "m.binpb", "etag", len(data), 0), memoryview(data))
    (segment,) = make_segments(METRICS, OWN, "default", [raw], store.put).segments
    return segment, store


class Bytes:
    """One segment, of which any byte of its columns may be changed."""

    def __init__(
        self, directory: Path, made: Callable[[Path], tuple[Segment, LocalStore]], columns: tuple[str, ...], kind: Store
    ) -> None:
        self.segment, store = made(directory / "made")
        self.data = bytes(store.get(self.segment.path, max_bytes=1 << 30))
        path = store.root / self.segment.path
        footer = read_footer(path, "key")
        self.scan = Scan("s", self.segment.signal, ALL_TIME, columns)
        self.store = kind(directory / "store")
        self.store.root.mkdir(parents=True)
        self._directory = directory
        self._asked = 0
        self.answer = self.ask(self.data)
        self.chunks = [
            (group, leaf, span)
            for column in columns
            for leaf, parts in enumerate(zip(*footer.chunks(column), strict=True))
            for group, span in enumerate(parts)
        ]
        self.bytes = [at for _, _, (first, end) in self.chunks for at in range(first, end)]

    def ask(self, data: bytes) -> pa.Table:
        """Every value of every column."""
        self.store.put(self.segment.path, data)
        self._asked += 1
        cache = SegmentCache(self.store, self._directory / f"cache{self._asked}", 1 << 30)
        try:
            return Asking(cache, self._directory).ask(self.scan, "SELECT * FROM s", [self.segment])[0]
        finally:
            cache.close()

    def check(self, at: int, by: int) -> None:
        """It is refused, or the answer is the same."""
        data = bytearray(self.data)
        data[at] ^= by
        try:
            found = self.ask(bytes(data))
        except Corrupt:
            return
        assert found.equals(self.answer), f"byte {at} changed by {by:#04x}"


KINDS = {
    "logs": (log_segment, ("timestamp", "message", "trace_id", "severity", "fingerprint", "attributes")),
    "metrics": (metric_segment, ("timestamp", "value", "metric_name", "series", "exemplars", "attributes")),
}


@pytest.fixture(scope="module", params=[(name, store) for name in KINDS for store in STORES])
def any_byte(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Bytes:
    name, store = request.param
    return Bytes(tmp_path_factory.mktemp(name), *KINDS[name], store)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(place=st.integers(min_value=0), by=st.integers(1, 255))
def test_any_byte_of_a_chunk_that_is_changed_is_refused_or_changes_nothing(
    any_byte: Bytes, place: int, by: int
) -> None:
    any_byte.check(any_byte.bytes[place % len(any_byte.bytes)], by)


# Every byte of headers, which no checksum covers


def paged(path: Path) -> pa.Table:
    """Every encoding that segments have, in pages that are small; one dictionary grew too large."""
    chance = random.Random(1)
    rows = 1200
    table = pa.table(
        {
            "outgrown": [f"w{chance.randrange(400)}-{'x' * chance.randrange(9)}" for _ in range(rows)],
            "coded": [chance.choice(["a", "bb", "ccc"]) for _ in range(rows)],
            "numbers": [chance.choice([5, 70, 2**40]) for _ in range(rows)],
            "sparse": [f"s{n}" if n % 397 == 0 else None for n in range(rows)],
            "none": pa.nulls(rows, pa.string()),
            "items": [[chance.choice(["p", "q", None])] * chance.randrange(3) for _ in range(rows)],
            "plain": [chance.randbytes(2).hex() for _ in range(rows)],
            "split": [chance.random() for _ in range(rows)],
            "packed": list(range(rows)),
            "lengths": [chance.randbytes(8) for _ in range(rows)],
            "truths": [chance.random() < 0.5 for _ in range(rows)],
        }
    )
    pq.write_table(
        table,
        path,
        compression="zstd",
        write_page_index=True,
        write_page_checksum=True,
        dictionary_pagesize_limit=2000,
        data_page_size=4000,
        write_batch_size=100,
        use_dictionary=["outgrown", "coded", "numbers", "sparse", "none", "items.list.element"],
        column_encoding={
            "split": "BYTE_STREAM_SPLIT",
            "packed": "DELTA_BINARY_PACKED",
            "lengths": "DELTA_LENGTH_BYTE_ARRAY",
        },
    )
    return table


@pytest.fixture(scope="module")
def pages_file(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, pa.Table]:
    path = tmp_path_factory.mktemp("pages") / "pages.parquet"
    return path, paged(path)


ENCODINGS = {"outgrown": {0, 8}, "coded": {8}, "numbers": {8}, "sparse": {8}, "none": {8}, "items": {8}}
ENCODINGS |= {"plain": {0}, "split": {9}, "packed": {5}, "lengths": {6}, "truths": {0}}


@pytest.mark.parametrize("column", ENCODINGS)
def test_every_byte_of_a_header(column: str, pages_file: tuple[Path, pa.Table], tmp_path: Path) -> None:
    path, table = pages_file
    data, footer = path.read_bytes(), read_footer(path, "key")
    ((first, end),) = footer.chunks(column)[0]
    chunk, stored = footer.chunk(0, footer.leaves[column][0]), data[-footer.bytes : -TRAILER]
    found = pages_of(data[first:end], dictionary=chunk.has_dictionary_page)
    assert {page.encoding for page in found[chunk.has_dictionary_page :]} == ENCODINGS[column]
    starts = [0, *(page.body + page.packed for page in found)]
    headers = [at for start, page in zip(starts, found, strict=False) for at in range(start, page.body)]
    passed = []
    for at in headers:
        for byte in {*range(256)} - {data[first + at]}:
            changed = data[first : first + at] + bytes([byte]) + data[first + at + 1 : end]
            with suppress(Corrupt):
                check_pages(changed, chunk, stored)
                passed.append(changed)
    # A dictionary's number of texts, which DuckDB finds out, and that it is sorted, for which it does not care.
    assert len(passed) < 0.01 * 255 * len(headers)
    for number, changed in enumerate(passed):
        other = tmp_path / f"{number}.parquet"
        other.write_bytes(data[:first] + changed + data[end:])
        with suppress(duckdb.Error):
            relation = duckdb.sql(f"SELECT {column} FROM read_parquet('{other}')")
            assert relation is not None
            assert relation.to_arrow_table()[column].equals(table[column])


def test_pages_without_checksums_are_read(tmp_path: Path) -> None:
    """As older segments have them, or with statistics of their own; what their headers say must still be so."""
    table = pa.table({"n": [n // 3 for n in range(30_000)], "t": [f"text {n % 7}" for n in range(30_000)]})
    for number, index in enumerate((True, False)):
        path = tmp_path / f"{number}.parquet"
        pq.write_table(table, path, write_page_index=index, data_page_size=5000)
        data, footer = path.read_bytes(), read_footer(path, "key")
        stored = data[-footer.bytes : -TRAILER]
        for column in ("n", "t"):
            ((first, end),) = footer.chunks(column)[0]
            check_pages(data[first:end], footer.chunk(0, footer.leaves[column][0]), stored)
            with pytest.raises(Corrupt, match=r"no header of a page|ends beyond it"):
                check_pages(data[first : end - 5], footer.chunk(0, footer.leaves[column][0]), stored)
