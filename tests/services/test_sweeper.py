"""What a sweep takes and what it leaves, chore by chore, on local files and on a real S3 server."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import pytest

from lakerunner.bus.topics import CompactBox, RollupBox, encode
from lakerunner.index.commit import Commit
from lakerunner.index.index import Index
from lakerunner.model.errors import Unavailable, UserError
from lakerunner.model.retention_policy import WAIT_NS
from lakerunner.model.source import SourceObject
from lakerunner.model.time import DAY_NS, HOUR_NS, MINUTE_NS
from lakerunner.objects.open import StoreAddress, open_store
from lakerunner.services.sweep.other_chores import raw_retention_ns
from lakerunner.services.sweep.segment_chores import FEW, Orphans, are_too_many
from lakerunner.services.sweeper import ReportLine, Sweeper, SweepReport, chores_of, findings, sweep
from lakerunner.settings import Settings
from servers.lake import wait_until
from servers.postgres import empty_index
from servers.seaweedfs import S3Server
from suites.small_pages import small_chores
from suites.swept_lake import ACME, GRACE_NS, LONG_AGO_NS, NOW_NS, OTHER, SweptLake, files_of

TIERS = ("10s", "1m", "5m", "1h", "1d")


@pytest.fixture
def swept_index(embedded_postgres_url: str) -> Iterator[Index]:
    with empty_index(embedded_postgres_url, ACME, OTHER, connections=4) as opened:
        yield opened


@pytest.fixture
def address(tmp_path: Path) -> StoreAddress:
    return StoreAddress((tmp_path / "store").as_uri())


@pytest.fixture
def lake(swept_index: Index, address: StoreAddress) -> SweptLake:
    return SweptLake(swept_index, open_store(address))


def swept(lake: SweptLake, address: StoreAddress, now_ns: int = NOW_NS, **retention: str) -> SweepReport:
    named = {name.replace("_", "."): text for name, text in retention.items()}
    report = sweep(small_chores(lake.index, lake.store, address, named), now_ns, lambda *_: None, lambda: True)
    assert report.failures == []
    assert not report.stopped
    return report


def lines(report: SweepReport) -> list[tuple[str, str, int, int, bool]]:
    return [(line.kind.value, line.what, line.count, line.bytes, line.goes) for line in report.lines()]


def test_retention_hides_first_and_deletes_when_the_grace_time_ends(lake: SweptLake, address: StoreAddress) -> None:
    old = [lake.segment(f"old {place}", 30 * DAY_NS + place) for place in range(5)]
    young = lake.segment("young", 30 * DAY_NS - 1)
    kept = lake.segment("kept", 30 * DAY_NS, signal="traces")
    first = swept(lake, address, logs="30d")
    assert lines(first) == [("past retention", "logs", 5, 5 * 16, True)]
    assert lake.objects() == files_of(*old, young, kept)
    assert lake.states() == {one.id: "expired" for one in old} | {young.id: "live", kept.id: "live"}

    assert lines(swept(lake, address, NOW_NS + GRACE_NS - MINUTE_NS, logs="31d")) == []
    assert lake.objects() == files_of(*old, young, kept)
    last = swept(lake, address, NOW_NS + GRACE_NS, logs="31d")
    assert lines(last) == [("expired", "logs", 5, 5 * 16, True)]
    assert (last.objects, last.bytes, last.rows) == (15, 80, {"segments": 5})
    assert lake.objects() == files_of(young, kept)
    assert lake.states() == {young.id: "live", kept.id: "live"}
    assert lines(swept(lake, address, NOW_NS + GRACE_NS, logs="31d")) == []


def test_each_organization_signal_and_tier_has_its_own(lake: SweptLake, address: StoreAddress) -> None:
    made = {
        (who.name, tier): lake.segment(
            f"{who.name} {tier}", 10 * DAY_NS, organization=who.id, signal="metrics", frequency_ms=tier, rolled=True
        )
        for who in (ACME, OTHER)
        for tier in (0, 10_000, 60_000, 3_600_000)
    }
    lake.index.retention.set(OTHER.id, {("metrics", 0): None, ("metrics", 60_000): 9 * DAY_NS})
    swept(lake, address, metrics="10d", metrics_10s="5d", metrics_1m="11d", metrics_1h="10d")
    gone = {name for name, one in made.items() if lake.states()[one.id] == "expired"}
    assert gone == {
        ("acme", 0), ("acme", 10_000), ("acme", 3_600_000), ("other", 10_000), ("other", 60_000), ("other", 3_600_000),
    }  # fmt: skip


def test_points_that_are_not_rolled_up_wait_for_it(lake: SweptLake, address: StoreAddress) -> None:
    def points(name: str, age_ns: int, **values: Any) -> UUID:
        return lake.segment(name, age_ns, signal="metrics", **values).id

    rolled = points("rolled", 15 * DAY_NS, rolled=True)
    waits = points("waits", 15 * DAY_NS)
    in_vain = points("in vain", 15 * DAY_NS + WAIT_NS)
    backfilled = points("backfilled", 25 * DAY_NS, created_ns=NOW_NS - DAY_NS)
    useless = points("useless", 91 * DAY_NS, created_ns=NOW_NS - DAY_NS)
    tiers = {f"metrics_{tier}": "90d" for tier in TIERS}
    report = swept(lake, address, NOW_NS, metrics="15d", **tiers)
    states = lake.states()
    assert [states[one] for one in (rolled, waits, in_vain, backfilled, useless)] == [
        "expired", "live", "expired", "live", "expired",
    ]  # fmt: skip
    told = [(line.count, line.goes, line.reason.partition("15d")[2]) for line in report.lines()]
    assert told == [
        (2, True, "; its files are deleted after the grace time"),
        (1, True, "; its rollup did not happen in time, so rollups lack its rows"),
        (2, False, ", but stays: it is not rolled up yet, and rollups are kept longer"),
    ]


def test_replaced_segments_go_after_the_grace_time_with_all_that_stands_beside_them(
    lake: SweptLake, address: StoreAddress
) -> None:
    old = lake.segment("old", state="replaced", ended_ns=NOW_NS - GRACE_NS)
    unknown_side = lake.put(old.side_path("of.a.later.release"), b"12345")
    fresh = lake.segment("fresh", state="replaced", ended_ns=NOW_NS - GRACE_NS + MINUTE_NS)
    neighbour = lake.segment("neighbour")
    assert old.path.rpartition("/")[0] == neighbour.path.rpartition("/")[0]
    report = swept(lake, address)
    assert lines(report) == [("replaced", "logs", 1, 21, True)]
    assert (report.objects, report.bytes) == (4, 21)
    assert unknown_side not in lake.objects()
    assert lake.objects() == files_of(fresh, neighbour)
    assert lake.states() == {fresh.id: "replaced", neighbour.id: "live"}


def test_a_row_whose_files_are_gone_goes_quietly(lake: SweptLake, address: StoreAddress) -> None:
    old = lake.segment("old", state="expired", ended_ns=NOW_NS - DAY_NS)
    lake.store.delete(files_of(old))
    report = swept(lake, address)
    assert (report.objects, report.rows, lake.states()) == (0, {"segments": 1}, {})


def test_orphans_go_when_they_are_old_and_nobody_else(lake: SweptLake, address: StoreAddress) -> None:
    live = lake.segment("live")
    old = {lake.orphan(f"old {place}", NOW_NS - GRACE_NS) for place in range(4)}
    old.add(lake.orphan("of a rule", NOW_NS - GRACE_NS, collector="_errors.1"))
    young = lake.orphan("young", NOW_NS - GRACE_NS + 1)
    strays = {
        lake.put(f"db/{ACME.id}/c/20251124/logs/10/notes.txt"),
        lake.put(f"db/{ACME.id}/c/tbl_{uuid4()}.parquet"),
        lake.put(f"db/{ACME.id}/c/20251124/logs/10/tbl_{uuid4()}"),
        lake.put(f"db/{uuid4()}/c/20251124/logs/10/tbl_{uuid4()}.parquet"),  # of nobody that the index knows
        lake.put(f"otel-raw/acme/c/20251124/logs/10/tbl_{uuid4()}.parquet"),
        lake.put("elsewhere/x"),
    }
    report = swept(lake, address)
    assert lines(report) == [("orphan", "logs", 5, 30, True)]
    assert not old & lake.objects()
    assert lake.objects() == files_of(live) | {young} | strays


@pytest.mark.parametrize("state", ["live", "replaced", "expired"])
def test_a_file_with_a_row_in_any_state_is_no_orphan(lake: SweptLake, address: StoreAddress, state: str) -> None:
    lake.segment("any", state=state, ended_ns=None if state == "live" else NOW_NS - MINUTE_NS)
    lake.segment("live")
    before = lake.objects()
    assert lines(swept(lake, address)) == []
    assert lake.objects() == before


def test_an_orphan_that_is_committed_or_written_again_before_the_deletion_stays(
    lake: SweptLake, address: StoreAddress
) -> None:
    live = lake.segment("live")
    late = lake.segment("late")
    with lake.index.pool.connection() as connection:
        connection.execute("DELETE FROM lrdb.segments WHERE id = %s", (late.id,))
    again, gone = lake.orphan("again"), lake.orphan("gone")
    chore = Orphans(lake.index, lake.store, GRACE_NS)
    found = [finding for page in chore.find(NOW_NS) for finding in page.findings]
    assert {key for one in found for key in one.keys} == files_of(late) | {again, gone}
    lake.index.commit(Commit((late,), (), ()))
    lake.put(again, b"orphan", NOW_NS)
    lake.store.delete([gone])
    assert chore.take(found, NOW_NS).objects == 0
    assert lake.objects() == files_of(live, late) | {again}


def test_an_index_that_knows_too_little_takes_no_orphans_unless_forced(lake: SweptLake, address: StoreAddress) -> None:
    for place in range(3):
        lake.orphan(f"lost {place}")
    assert lines(swept(lake, address)) == [("orphan", "logs", 3, 18, False)]
    assert len(lake.objects()) == 3
    forced = Orphans(lake.index, lake.store, GRACE_NS, force=True)
    assert sweep((forced,), NOW_NS, lambda *_: None, lambda: True).objects == 3
    assert lake.objects() == set()


@pytest.mark.parametrize(
    ("orphans", "known", "many"),
    [(1, 0, True), (0, 0, True), (FEW, 1, False), (FEW + 1, 1, True), (FEW + 1, 10_000, False), (1001, 10_000, True)],
)
def test_too_many_is_more_than_a_few_and_than_a_tenth(orphans: int, known: int, many: bool) -> None:
    assert are_too_many(orphans, known) is many


def test_half_written_files_go_when_they_are_old(lake: SweptLake, address: StoreAddress, tmp_path: Path) -> None:
    live = lake.segment("live")
    directory = (tmp_path / "store" / live.path).parent
    names = {"old": NOW_NS - GRACE_NS, "young": NOW_NS - GRACE_NS + 1}
    for name, modified_ns in names.items():
        path = directory / f".lakerunner-put-{name}"
        path.write_bytes(b"half")
        os.utime(path, ns=(modified_ns, modified_ns))
    (directory / ".lakerunner-put-linked").symlink_to(directory)
    report = swept(lake, address)
    assert lines(report) == [("upload", "", 1, 4, True)]
    assert sorted(path.name for path in directory.glob(".lakerunner*")) == [
        ".lakerunner-put-linked",
        ".lakerunner-put-young",
    ]
    assert lake.objects() == files_of(live)


def raw(lake: SweptLake, name: str, state: str, ended_ns: int) -> str:
    key = f"otel-raw/acme/c/logs_{name}.binpb"
    lake.put(key, name.encode())
    meta = lake.store.head(key)
    source = SourceObject(lake.store.bucket, key, meta.etag or "", meta.size, meta.modified_ns)
    lake.index.commit(Commit((), (source,), ()) if state == "done" else Commit((), (), ((source, "broken"),)))
    with lake.index.pool.connection() as connection:
        connection.execute(
            "UPDATE lrdb.source_objects SET ended_at = to_timestamp(%s::float8 / 1e9) WHERE key = %s", (ended_ns, key)
        )
    return key


def test_raw_objects_go_by_their_retention_and_failed_ones_never(lake: SweptLake, address: StoreAddress) -> None:
    done = raw(lake, "done", "done", NOW_NS - 2 * DAY_NS)
    stays = {
        raw(lake, "fresh", "done", NOW_NS - 2 * DAY_NS + MINUTE_NS),
        raw(lake, "failed", "failed", LONG_AGO_NS),
        lake.put("otel-raw/acme/c/logs_never_announced.binpb"),
    }
    rewritten = raw(lake, "rewritten", "done", LONG_AGO_NS)
    stays.add(lake.put(rewritten, b"other content, not ingested"))
    report = swept(lake, address)
    assert lines(report) == [("raw", "logs", 1, 4, True)]
    assert lake.objects() == stays
    with lake.index.pool.connection() as connection:
        rows = connection.execute("SELECT state FROM lrdb.source_objects WHERE key = %s", (done,)).fetchall()
    assert rows == [("done",)]  # so it is not ingested again


def test_raw_objects_stay_unless_a_setting_says_so(lake: SweptLake, address: StoreAddress) -> None:
    assert "raw objects" not in [chore.name for chore in chores_of(Settings(), lake.index, lake.store, address)]
    set_ = replace(Settings(), raw_retention="24h")
    assert "raw objects" in [chore.name for chore in chores_of(set_, lake.index, lake.store, address)]
    assert raw_retention_ns("") is None
    assert raw_retention_ns("24h") == DAY_NS
    with pytest.raises(UserError, match="raw_retention: 23h is less than 24h: duplicates of pushed requests"):
        raw_retention_ns("23h")
    with pytest.raises(UserError, match="raw_retention: 'soon' is not a duration"):
        raw_retention_ns("soon")


def test_wrong_settings_are_refused_before_anything_is_swept(lake: SweptLake, address: StoreAddress) -> None:
    for wrong in ({"retention": {"log": "1d"}}, {"raw_retention": "1h"}, {"sweep_grace_seconds": -1.0}):
        with pytest.raises(UserError):
            chores_of(replace(Settings(), **wrong), lake.index, lake.store, address)


def test_failed_work_goes_when_none_of_its_segments_waits(lake: SweptLake, address: StoreAddress) -> None:
    live = lake.segment("live", signal="metrics")
    rolled = lake.segment("rolled", signal="metrics", rolled=True)
    replaced = lake.segment("replaced", signal="metrics", state="replaced", ended_ns=NOW_NS)
    unknown = uuid4()

    def merge(*ids: object) -> bytes:
        return encode(CompactBox(ACME.id, "c", "metrics", 0, 1, ids))  # type: ignore[arg-type]

    def roll(*ids: object) -> bytes:
        return encode(RollupBox(ACME.id, "c", 0, 10_000, ids))  # type: ignore[arg-type]

    void = [merge(replaced.id, unknown), roll(rolled.id, replaced.id), merge()]
    needed = [merge(replaced.id, rolled.id), roll(rolled.id, live.id), b"of another release"]
    with lake.index.pool.connection() as connection:
        for place, payload in enumerate([*void, *needed]):
            connection.execute(
                "INSERT INTO lrdb.failed_work VALUES ('t', %s, %s, %s, 1, 'r', 'aside', now(), now())",
                (bytes([place]), payload, ACME.id),
            )
    report = swept(lake, address)
    assert report.rows == {"failed_work": 3}
    assert [box.payload for box in lake.index.sweep.failed_work(None, 10)] == needed


def test_old_pushes_are_forgotten(lake: SweptLake, address: StoreAddress) -> None:
    for place in range(5):
        lake.index.pushes.claim(ACME.id, "logs", f"key {place}", [bytes([place])])
    now_ns = lake.index.sweep.now_ns()
    assert lines(swept(lake, address, now_ns + DAY_NS - HOUR_NS)) == []
    report = swept(lake, address, now_ns + DAY_NS + HOUR_NS)
    assert lines(report) == [("push", "", 5, 0, True)]
    assert report.rows["push_objects"] == 5


def test_a_dry_run_finds_the_same_and_changes_nothing(lake: SweptLake, address: StoreAddress) -> None:
    lake.segment("live")
    lake.segment("past", 40 * DAY_NS)
    lake.segment("waits", 40 * DAY_NS, signal="metrics", created_ns=NOW_NS)
    lake.segment("replaced", state="replaced", ended_ns=NOW_NS - DAY_NS)
    lake.orphan("orphan")
    raw(lake, "done", "done", LONG_AGO_NS)
    before = lake.objects(), lake.states()
    chores = small_chores(lake.index, lake.store, address, {"logs": "30d", "metrics": "30d"})
    told: list[str] = []
    dry = findings(chores, NOW_NS, lambda _, __, found: told.extend(key for one in found for key in one.keys))
    assert (lake.objects(), lake.states()) == before
    assert len(told) == len(set(told)) == 1 + 1 + 3 + 1 + 1
    wet = swept(lake, address, logs="30d", metrics="30d")
    assert dry.lines() == wet.lines()
    assert (dry.objects, wet.objects) == (0, 5)


def test_a_sweep_that_may_not_go_on_deletes_no_more(lake: SweptLake, address: StoreAddress) -> None:
    for place in range(6):
        lake.segment(f"s{place}", state="replaced", ended_ns=NOW_NS - DAY_NS, sides=())
    answers = iter([True, False])
    chores = small_chores(lake.index, lake.store, address, {})
    report = sweep(chores, NOW_NS, lambda *_: None, lambda: next(answers))
    assert report.stopped
    assert (report.objects, len(lake.objects()), len(lake.states())) == (2, 4, 4)


def test_a_lost_lock_stops_a_sweep(lake: SweptLake, address: StoreAddress) -> None:
    lake.segment("s", state="replaced", ended_ns=NOW_NS - DAY_NS)
    with lake.index.sweep.alone("x") as lock:
        assert lock is not None
        with lake.index.pool.connection() as connection:
            connection.execute("SELECT pg_terminate_backend(%s, 60000)", (lock.connection.info.backend_pid,))
        report = sweep(small_chores(lake.index, lake.store, address, {}), NOW_NS, lambda *_: None, lock.held)
    assert report.stopped
    assert len(lake.objects()) == 3


def test_a_chore_that_fails_keeps_no_other_from_its_work(lake: SweptLake, address: StoreAddress) -> None:
    class Broken:
        name = "broken"

        def find(self, now_ns: int) -> Iterator[object]:
            raise Unavailable("away")

    gone = lake.segment("s", state="replaced", ended_ns=NOW_NS - DAY_NS)
    chores = (Broken(), *small_chores(lake.index, lake.store, address, {}))
    report = sweep(chores, NOW_NS, lambda *_: None, lambda: True)  # type: ignore[arg-type]
    assert report.failures == [("broken", "away")]
    assert gone.id not in lake.states()


class Stopping:
    """An event that never waits."""

    def wait(self, seconds: float) -> bool:
        return False

    def is_set(self) -> bool:
        return False


def test_the_service_sweeps_at_its_times_and_alone(lake: SweptLake, address: StoreAddress) -> None:
    clock = [0.0]
    chores = chores_of(replace(Settings(), sweep_grace_seconds=60.0), lake.index, lake.store, address)
    service = Sweeper(lake.index, chores, 600.0, Stopping(), lambda: clock[0])  # type: ignore[arg-type]
    lake.segment("one", state="replaced", ended_ns=NOW_NS, sides=())
    service.step()
    assert len(lake.states()) == 1  # not before the first minute
    clock[0] = 60.0
    with lake.index.sweep.alone("another"):
        service.step()
    assert len(lake.states()) == 1
    clock[0] = 659.0
    service.step()
    assert len(lake.states()) == 1
    wait_until(lambda: lake.index.sweep.sweeping() == "", "the server has seen the other one go", 60)
    clock[0] = 661.0
    service.step()
    assert (lake.states(), lake.objects()) == ({}, set())


def test_lines_gather_what_is_alike(lake: SweptLake, address: StoreAddress) -> None:
    lake.segment("a", 40 * DAY_NS)
    lake.segment("b", 50 * DAY_NS)
    chores = small_chores(lake.index, lake.store, address, {"logs": "30d"})
    (line,) = findings(chores, NOW_NS, lambda *_: None).lines()
    reason = "kept for 30d; its files are deleted after the grace time"
    assert line == ReportLine(line.kind, ACME.id, "logs", reason, True, 2, 32, NOW_NS - 50 * DAY_NS)


class TestS3:
    """Files of S3 have the time at which they were written: the clock of the sweep goes on instead."""

    @pytest.fixture
    def address(self, s3_server: S3Server) -> StoreAddress:
        address = s3_server.address("swept")
        return replace(address, url=f"s3://swept/below/{uuid4()}")

    def test_a_sweep_on_s3(self, lake: SweptLake, address: StoreAddress) -> None:
        real_ns = lake.index.sweep.now_ns()
        live = lake.segment("live")
        lake.segment("replaced", state="replaced", ended_ns=NOW_NS)
        lake.orphan("orphan")
        key = raw(lake, "done", "done", NOW_NS)
        kept = raw(lake, "failed", "failed", NOW_NS)
        before = lake.objects()
        assert lines(swept(lake, address, NOW_NS)) == []
        assert lake.objects() == before
        now_ns = real_ns + 3 * DAY_NS
        report = swept(lake, address, now_ns)
        assert lines(report) == [
            ("replaced", "logs", 1, 16, True),
            ("orphan", "logs", 1, 6, True),
            ("raw", "logs", 1, 4, True),
        ]
        assert report.objects == 5
        assert key not in lake.objects()
        assert lake.objects() == files_of(live) | {kept}
        assert lines(swept(lake, address, now_ns)) == []
