"""Backfill announces what stands there already, once, within bounds, and as the caller says."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from lakerunner.index.index import Index
from lakerunner.model.errors import UserError
from lakerunner.model.source import Route, Routes, SourceState
from lakerunner.model.time import ALL_TIME, TimeRange
from lakerunner.objects.open import StoreAddress, open_store
from lakerunner.objects.store import ObjectStore
from lakerunner.services.announce import BATCH, Announcer, Newcomers
from lakerunner.services.backfill import Backfill, BackfillCounts, RouteOverride, changed_between, prefix_of
from servers.lake import LAKERUNNER, clean_environment, lakerunner
from servers.postgres import drop_database, fresh_database
from suites.recorded import asked_for, memory_store, recorded

NOW_NS = 1_800_000_000_000_000_000
DAY_NS = 86_400 * 10**9


def run(index: Index, store: ObjectStore, prefix: str, changed: TimeRange = ALL_TIME, **said: Any) -> BackfillCounts:
    dry_run = bool(said.pop("dry_run", False))
    announcer = Announcer(index, store, RouteOverride(**said).route_of(Routes()))
    found = Backfill(Newcomers(index, store), announcer, prefix, changed, dry_run=dry_run)
    return list(found.run(NOW_NS, 0))[-1]


def test_it_announces_once_and_is_resumed_by_running_again(index: Index) -> None:
    store = memory_store()
    for number in range(BATCH + 2):
        store.put(f"otel-raw/acme/edge/{number}.binpb", b"x")
    store.put("otel-raw/stray", b"x")
    store.put("otel-raw/nobody/edge/x.binpb", b"x")
    store.put("logs-raw/x.binpb", b"x")
    announcer = Announcer(index, store, Routes().route_of)
    cut_short = Backfill(Newcomers(index, store), announcer, "otel-raw/", ALL_TIME, dry_run=False).run(NOW_NS, 0)
    assert next(cut_short).new > 900
    cut_short.close()
    counts = run(index, store, "otel-raw/")
    assert counts.listed == BATCH + 4
    assert counts.strays == 0
    assert counts.new + counts.known + counts.set_aside == BATCH + 4
    assert counts.known > 900
    assert run(index, store, "otel-raw/") == BackfillCounts(listed=BATCH + 4, known=BATCH + 4)
    assert len(asked_for(index, store)) == BATCH + 2
    assert "logs-raw/x.binpb" not in recorded(index, store)


def test_a_dry_run_counts_and_leaves_no_trace(index: Index) -> None:
    store = memory_store()
    store.put("logs-raw/x.binpb", b"x")
    assert run(index, store, "logs-raw/", dry_run=True) == BackfillCounts(listed=1, new=1)
    assert recorded(index, store) == {}
    assert run(index, store, "logs-raw/") == BackfillCounts(listed=1, new=1)
    assert run(index, store, "logs-raw/", dry_run=True) == BackfillCounts(listed=1, known=1)


def test_bounds_on_the_time_of_change_are_half_open(index: Index, tmp_path: Path) -> None:
    store = open_store(StoreAddress(tmp_path.as_uri()))
    for number in range(4):
        store.put(f"logs-raw/{number}.binpb", f"{tmp_path}{number}".encode())
        changed_ns = NOW_NS - number * DAY_NS
        os.utime(tmp_path / "logs-raw" / f"{number}.binpb", ns=(changed_ns, changed_ns))
    changed = changed_between("2d", "1d", NOW_NS)
    assert run(index, store, "logs-raw/", changed) == BackfillCounts(listed=4, outside=3, new=1)
    changed = changed_between("3d", None, NOW_NS)
    assert run(index, store, "logs-raw/", changed) == BackfillCounts(listed=4, known=1, new=3)


@pytest.mark.parametrize(
    ("text", "expected_ns"),
    [
        ("1970-01-02", DAY_NS),
        ("1970-01-01T00:00:01.5Z", 1_500_000_000),
        ("1970-01-01T02:00:00+02:00", 0),
        ("90s", NOW_NS - 90 * 10**9),
        ("6h", NOW_NS - DAY_NS // 4),
    ],
)
def test_times_people_write(text: str, expected_ns: int) -> None:
    assert changed_between(text, None, NOW_NS) == TimeRange(expected_ns, ALL_TIME.end_ns)


@pytest.mark.parametrize(
    ("since", "until", "message"),
    [
        ("yesterday", None, "--since 'yesterday' is not a time: write 2026"),
        (None, "6 h", "--until '6 h' is not a time"),
        ("1h", "2h", "--since 1h must be before --until 2h"),
        ("1h", "1h", "must be before"),
    ],
)
def test_times_that_are_none_are_refused(since: str | None, until: str | None, message: str) -> None:
    with pytest.raises(UserError, match=message):
        changed_between(since, until, NOW_NS)


def test_the_caller_says_whose_it_is(index: Index) -> None:
    store = memory_store()
    for key in ("archive/2025/x.binpb", "otel-raw/nobody/edge/y.binpb", "db/a/z.parquet", "archive/.hidden"):
        store.put(key, b"x")
    assert run(index, store, "", organization="acme") == BackfillCounts(listed=4, strays=2, new=2)
    assert recorded(index, store) == {
        "archive/2025/x.binpb": ("acme", "default", "seen"),
        "otel-raw/nobody/edge/y.binpb": ("acme", "edge", "seen"),
    }
    seen = [one for one in index.sources.list(SourceState.SEEN, limit=5) if one.source.bucket == store.bucket]
    for record in seen:
        index.sources.set_aside(record.source, "damaged")
    assert Announcer(index, store, Routes().route_of).again(seen) == 2  # as recorded, whatever the keys say
    assert recorded(index, store)["archive/2025/x.binpb"] == ("acme", "default", "seen")
    assert len(asked_for(index, store)) == 4


def test_what_is_said_and_what_keys_say() -> None:
    assert RouteOverride().route_of(Routes())("archive/x") is None
    assert RouteOverride(collector="c", signal="traces").route_of(Routes())("otel-raw/acme/edge/x") == Route(
        "acme", "c", "traces"
    )
    assert RouteOverride(organization="o").route_of(Routes())("archive/metrics_1.json") == Route(
        "o", "default", "metrics"
    )
    with pytest.raises(UserError, match="collector name 'a b' is invalid"):
        RouteOverride(collector="a b")


@pytest.mark.parametrize(
    ("url", "store", "prefix"),
    [
        ("otel-raw/acme", "s3://lake", "otel-raw/acme"),
        ("/otel-raw/acme", "s3://lake", "otel-raw/acme"),
        ("s3://lake/otel-raw/a b/", "s3://lake", "otel-raw/a b/"),
        ("s3://lake", "s3://lake", ""),
        ("s3://lake/one/otel-raw/", "s3://lake/one", "otel-raw/"),
        ("s3://lake/one", "s3://lake/one/", ""),
        ("file:///data/store/logs-raw/", "file:///data/store", "logs-raw/"),
    ],
)
def test_a_url_of_the_store_names_a_prefix(url: str, store: str, prefix: str) -> None:
    assert prefix_of(url, store) == prefix


@pytest.mark.parametrize(
    ("url", "store", "message"),
    [
        ("s3://other/x", "s3://lake", r"s3://other/x is not in the store of this lake, s3://lake"),
        ("gs://lake/x", "s3://lake", "gs://lake/x is not in the store of this lake"),
        ("s3://lake/two/x", "s3://lake/one", "s3://lake/two/x is not below the store of this lake, s3://lake/one"),
        ("s3://lake/onetwo/x", "s3://lake/one", "is not below"),
        ("file:///elsewhere/x", "file:///data/store", "is not below"),
    ],
)
def test_another_store_is_refused_by_name(url: str, store: str, message: str) -> None:
    with pytest.raises(UserError, match=message):
        prefix_of(url, store)


@pytest.fixture
def environment(embedded_postgres_url: str, tmp_path: Path) -> Iterator[dict[str, str]]:
    database = fresh_database(embedded_postgres_url)
    yield {"DATABASE_URL": database, "LAKERUNNER_STORE": (tmp_path / "store").as_uri()}
    drop_database(database)


def command(environment: dict[str, str], *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*LAKERUNNER, "backfill", *arguments],
        capture_output=True,
        text=True,
        timeout=60,
        env=clean_environment(environment | {"LAKERUNNER_SETTLE_SECONDS": "0"}),
        check=False,
    )


def test_the_command(environment: dict[str, str], tmp_path: Path) -> None:
    store = open_store(StoreAddress(environment["LAKERUNNER_STORE"]))
    store.put("otel-raw/default/edge/x.binpb", b"x")
    store.put("otel-raw/nobody/edge/y.binpb", b"y")
    dry = command(environment, "otel-raw/default/", "--dry-run")
    assert (dry.returncode, dry.stdout.partition(",")[0]) == (0, "1 object listed: 1 would be announced"), dry.stderr
    done = command(environment, f"{environment['LAKERUNNER_STORE']}/otel-raw/default/")
    assert (done.returncode, done.stdout.partition(",")[0]) == (0, "1 object listed: 1 announced"), done.stderr
    aside = command(environment, "otel-raw/")
    assert aside.returncode == 1
    assert "2 objects listed: 0 announced, 1 known" in aside.stdout
    assert "1 set aside" in aside.stdout
    refused = command(environment, "otel-raw/", "--org", "nobody")
    assert (refused.returncode, refused.stderr) == (
        1,
        "error: organization 'nobody' not found; known organizations: default\n",
    )


def test_follow_keeps_looking_until_interrupted(environment: dict[str, str], tmp_path: Path) -> None:
    store = open_store(StoreAddress(environment["LAKERUNNER_STORE"]))
    quick = environment | {"LAKERUNNER_SETTLE_SECONDS": "0", "LAKERUNNER_LISTER_SECONDS": "0.1"}
    with lakerunner(["backfill", "logs-raw/", "--follow"], tmp_path / "follow.log", quick) as process:
        process.wait_for("0 objects listed")
        store.put("logs-raw/x.binpb", b"x")
        process.wait_for("1 object listed: 1 announced")
        assert process.stop(signal.SIGINT) == 0
        assert "Traceback" not in process.text()
