"""Merges as a task does them: what they are called, what is cut, what is damaged, what is repeated."""

from __future__ import annotations

import resource
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import pyarrow.parquet as pq
import pytest

from lakerunner.model.errors import Unavailable
from lakerunner.model.segment import Segment, segment_id
from lakerunner.model.signal import LOGS
from lakerunner.objects.open import StoreAddress, shared_store
from lakerunner.objects.store import ObjectStore
from lakerunner.pipeline.compact import CompactLimits, CompactWork, compact_work
from pipeline.merge_oracle import expected, ingested, key_of, read
from pipeline.otlp_oracle import COLLECTOR, ORGANIZATION, request_type

START = 1_760_000_400_000_000_000
LIMITS = CompactLimits(memory=64 << 20, max_bytes=1 << 30)


def request(first: int, rows: int, services: int = 3, apart_ns: int = 1_000_003) -> bytes:
    made = request_type()()
    for service in range(services):
        resource_logs = made.resource_logs.add()
        resource_logs.resource.attributes.add(key=b"service.name").value.string_value = b"service %d" % service
        records = resource_logs.scope_logs.add().log_records
        for number in range(first, first + rows):
            record: Any = records.add(time_unix_nano=START + number * apart_ns, severity_number=9)
            record.body.string_value = b"cart %d of service %d is full" % (number, service)
            record.attributes.add(key=b"number").value.int_value = number
    return bytes(made.SerializeToString())


@pytest.fixture
def address(tmp_path: Path) -> StoreAddress:
    (tmp_path / "store").mkdir()
    return StoreAddress((tmp_path / "store").as_uri())


@pytest.fixture
def store(address: StoreAddress) -> ObjectStore:
    return shared_store(address)


def work_of(segments: list[Segment]) -> CompactWork:
    return CompactWork(ORGANIZATION, COLLECTOR, "logs", 0, 1, tuple(segments))


def everything(store: ObjectStore) -> dict[str, bytes]:
    return {meta.key: bytes(store.get(meta.key, max_bytes=1 << 30)) for meta in store.list("")}


def test_a_merge_is_named_after_its_work_and_holds_all_rows(store: ObjectStore, address: StoreAddress) -> None:
    segments = ingested(store, LOGS, [request(0, 400), request(200, 400), request(5000, 10)])
    before = everything(store)
    outcome = compact_work(work_of(segments), address, LIMITS)
    (made,) = outcome.segments
    assert (outcome.error, outcome.damaged) == ("", None)
    ids = [str(segment.id) for segment in segments]
    assert made.id == segment_id("compact", str(ORGANIZATION), COLLECTOR, "logs", 0, 1, LOGS.sort_version, ids)
    assert (made.level, made.frequency_ms, made.ingested, made.rolled) == (1, 0, 3, False)
    assert made.rows == 3 * (400 + 400 + 10)
    assert read(store, made) == expected(store, LOGS, segments)
    assert before.items() <= everything(store).items()
    assert made.columns == segments[0].columns
    assert made.statistics["services"] == ["service 0", "service 1", "service 2"]
    assert made.fingerprints == segments[0].fingerprints


def test_the_same_merge_again_gives_the_same_bytes(store: ObjectStore, address: StoreAddress) -> None:
    work = work_of(ingested(store, LOGS, [request(0, 900), request(450, 900)]))
    first = compact_work(work, address, LIMITS)
    files = everything(store)
    assert compact_work(work, address, LIMITS) == first
    assert everything(store) == files


def test_how_much_memory_there_is_changes_nothing(store: ObjectStore, address: StoreAddress) -> None:
    work = work_of(ingested(store, LOGS, [request(0, 900), request(450, 900), request(100, 1)]))
    first = compact_work(work, address, LIMITS)
    files = everything(store)
    assert compact_work(work, address, replace(LIMITS, memory=1)) == first
    assert everything(store) == files


def test_a_segment_that_is_large_enough_ends_where_the_sort_key_changes(
    store: ObjectStore, address: StoreAddress, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lakerunner.pipeline.compact.spec_of", lambda *_: replace(LOGS, row_group_rows=100))
    segments = ingested(store, LOGS, [request(0, 300), request(0, 299), request(0, 230, apart_ns=0)])
    outcome = compact_work(work_of(segments), address, replace(LIMITS, max_bytes=1))
    rows = [read(store, made) for made in outcome.segments]
    assert [row for part in rows for row in part] == expected(store, LOGS, segments)
    assert len({made.id for made in outcome.segments}) == len(rows) > 10
    for one, other in pairwise(rows):
        assert key_of(LOGS, one[-1]) < key_of(LOGS, other[0])
    assert max(map(len, rows)) >= 230


def test_what_is_damaged_is_named(store: ObjectStore, address: StoreAddress) -> None:
    segments = ingested(store, LOGS, [request(0, 50), request(20, 50), request(40, 50)])
    damaged = segments[1]
    whole = bytes(store.get(damaged.path, max_bytes=1 << 20))
    wanted, before = expected(store, LOGS, segments), set(everything(store))
    refused = 0
    for at in range(4, len(whole) - 8, 211):
        store.put(damaged.path, whole[:at] + bytes([whole[at] ^ 0x40]) + whole[at + 1 :])
        outcome = compact_work(work_of(segments), address, LIMITS)
        if outcome.damaged is None:  # parts of the footer that say nothing of the rows
            assert (outcome.error, len(outcome.segments)) == ("", 1)
            assert read(store, outcome.segments[0]) == wanted
            store.delete(everything(store).keys() - before)
        else:
            refused += 1
            assert (outcome.damaged, outcome.segments) == (damaged.id, ())
            assert str(damaged.id) in outcome.error
            assert outcome.error.splitlines() == [outcome.error]
            assert set(everything(store)) == before
    assert refused > 10
    for data in (b"", whole[:-9], whole[:100], whole + b"x"):
        store.put(damaged.path, data)
        assert compact_work(work_of(segments), address, LIMITS).damaged == damaged.id
    store.delete([damaged.path])
    outcome = compact_work(work_of(segments), address, LIMITS)
    assert outcome.damaged == damaged.id
    assert "holds no object" in outcome.error


def test_a_disk_that_takes_no_more_is_nobodys_damage() -> None:
    """The segments are whole: their merge fails, and none of them is set aside."""
    address = StoreAddress(f"memory://{uuid4().hex}")
    segments = ingested(shared_store(address), LOGS, [request(0, 50), request(20, 50)])
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, limits[1]))
    try:
        with pytest.raises(OSError, match="File too large"):
            compact_work(work_of(segments), address, LIMITS)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)


def test_rows_that_are_not_in_order_are_damage(store: ObjectStore, address: StoreAddress) -> None:
    segments = ingested(store, LOGS, [request(0, 50), request(20, 50)])
    path = store.local_path(segments[0].path)
    assert path is not None
    table = pq.read_table(path)
    pq.write_table(table.take(list(range(table.num_rows))[::-1]), path)
    turned = replace(segments[0], bytes=path.stat().st_size)
    outcome = compact_work(work_of([turned, segments[1]]), address, LIMITS)
    assert (outcome.damaged, outcome.segments) == (turned.id, ())
    assert "not in order" in outcome.error


def test_a_store_that_is_away_is_unavailable(store: ObjectStore, tmp_path: Path) -> None:
    segments = ingested(store, LOGS, [request(0, 5), request(2, 5)])
    away = StoreAddress("s3://away", (("endpoint", "http://127.0.0.1:9"), ("allow_http", "true"), ("region", "x")))
    with pytest.raises(Unavailable):
        compact_work(work_of(segments), replace(away, retries=0, retry_seconds=0.1), LIMITS)


def test_nothing_is_left_on_the_local_disk(
    store: ObjectStore, address: StoreAddress, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    local = tmp_path / "local"
    local.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(local))
    segments = ingested(store, LOGS, [request(0, 5), request(2, 5)])
    left = local / "lakerunner-merge-of-one-that-died"
    left.mkdir()
    (left / "lock").touch()
    (left / "half.parquet").write_bytes(b"half")
    assert compact_work(work_of(segments), address, LIMITS).error == ""
    store.delete([segments[0].path])
    assert compact_work(work_of(segments), address, LIMITS).damaged == segments[0].id
    assert list(local.iterdir()) == []


def test_segments_of_others_are_refused(store: ObjectStore) -> None:
    one, other = ingested(store, LOGS, [request(0, 5), request(2, 5)])
    for wrong in (
        replace(other, organization=UUID(int=7)),
        replace(other, collector="another"),
        replace(other, frequency_ms=10_000),
        replace(other, sort_version=9),
        replace(other, rolled=True),
        replace(other, ingested=0),
    ):
        with pytest.raises(ValueError):
            work_of([one, wrong])
