"""A lake whose boxer, compaction, rollup and sweeper are killed -9 at every failpoint of theirs, while small segments
of all signals come in and a part of them expires: `lakerunner fsck --deep` finds nothing wrong after any kill, no
query misses a row or sees one twice, and in the end all of it is tended as if nothing had happened.

Services are processes of their own; what they tend is put in without Spark. The order of segments and the counts come
from a seed, which a failure prints: TENDING_SEED=... replays it.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from hashlib import sha256
from pathlib import Path
from typing import Any

import httpx
import pytest

from lakerunner.bus.backlog import backlog
from lakerunner.index.commit import Commit
from lakerunner.index.index import Index
from lakerunner.model.failpoint import POINTS
from lakerunner.model.organization import DEFAULT_ORGANIZATION
from lakerunner.model.segment import Segment
from lakerunner.model.signal import SIGNALS
from lakerunner.model.source import SourceObject
from lakerunner.model.tier import RAW, TIERS
from lakerunner.model.time import HOUR_NS, MINUTE_NS, TimeRange
from lakerunner.objects.open import StoreAddress, open_store
from lakerunner.pipeline.make_segments import make_segments
from lakerunner.pipeline.read.rows import Raw
from lakerunner.services.outbox import commit_messages
from lakerunner.services.sweep.finding import segment_in
from lakerunner_demo.shop import Batch, Shop
from servers.lake import (
    LAKERUNNER,
    START_SECONDS,
    Process,
    clean_environment,
    lakerunner,
    query_api,
    wait_until,
)
from servers.lake import Lake as Served
from servers.ports import free_port
from servers.postgres import drop_database, fresh_database
from suites.otlp_rows import QUERIES, REQUESTS, answered_rows, expected_rows

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

ORGANIZATION = DEFAULT_ORGANIZATION
COLLECTOR = "edge"
TABLES = {"logs": "logs", "metrics": "metrics", "traces": "spans"}
ALWAYS = TimeRange(0, 1 << 62)
# Each round kills every service once, at these points; the next one finds what it left.
ROUNDS = (
    {"boxer": "before-box", "compact": "before-merge", "rollup": "before-window", "sweeper": "before-expire"},
    {"boxer": "after-box", "compact": "after-merge", "rollup": "after-window", "sweeper": "after-expire"},
    {"boxer": "after-arrivals", "compact": "before-swap", "rollup": "before-roll", "sweeper": "before-sweep"},
    {"compact": "after-swap", "rollup": "after-roll", "sweeper": "after-sweep"},
    {"compact": "after-compact", "rollup": "after-rollup", "sweeper": "after-forget"},
)
# A Spark worker dies at these, and the service lives to see it. Of the first a worker dies each time, until the work
# is set aside; of the others every second one, and the service gets through.
ALWAYS_DIES = {"before-merge", "before-window"}
DIES_NOW_AND_THEN = {"after-merge": "segments merged", "after-window": "segments rolled up"}
# On the way of a box of raw objects: test_exactly_once.py and tests/services/test_ingest_service.py kill there.
OF_INGEST = {
    "before-relay",
    "after-relay",
    "before-read",
    "before-put",
    "after-put",
    "before-commit",
    "after-commit",
    "after-ingest",
}
PER_ROUND_NS = 5 * MINUTE_NS
RETENTION = "logs=24h,traces=24h,metrics=24h"
# Longer than any work here takes from its first file to its commit; shorter than a round or two.
GRACE_SECONDS = 20
IDLE_SECONDS = 240


class Lake:
    """One PostgreSQL, one store, and the services that share them. Of what is put in, `kept` is within retention; the
    rest is past it as soon as it comes."""

    def __init__(self, directory: Path, database: str, stack: ExitStack, seed: int) -> None:
        self.directory = directory
        self.stack = stack
        self.chance = random.Random(seed)
        address = StoreAddress((directory / "store").as_uri())
        self.store = open_store(address)
        self.index = Index.open(database)
        stack.callback(self.index.close)
        self.index.migrate()
        self.index.organizations.create(ORGANIZATION)
        hour_ns = time.time_ns() // HOUR_NS * HOUR_NS
        self.kept = Shop(seed, hour_ns - 6 * HOUR_NS, 0.5)
        self.old = Shop(seed, hour_ns - 34 * HOUR_NS, 0.5)
        self.expected: dict[str, Counter[str]] = {name: Counter() for name in SIGNALS}
        self.put = 0
        self.environment = {
            "DATABASE_URL": database,
            "LAKERUNNER_STORE": address.url,
            "LAKERUNNER_SPARK_MASTER": "local[1]",
            "LAKERUNNER_REMINDER_SECONDS": "3600",  # no reminder mends what was lost
            "LAKERUNNER_COMPACT_MAX_SECONDS": "0.2",
            "LAKERUNNER_COMPACT_MAX_SEGMENTS": "6",
            "LAKERUNNER_ROLLUP_MAX_SECONDS": "0.1",
            "LAKERUNNER_WORK_MAX_ATTEMPTS": "2",
            "LAKERUNNER_WORK_RETRY_SECONDS": "0.5",
            "LAKERUNNER_RETENTION": RETENTION,
            "LAKERUNNER_SWEEP_SECONDS": "1",
            "LAKERUNNER_SWEEP_GRACE_SECONDS": str(GRACE_SECONDS),
        }
        self.numbers: Counter[str] = Counter()
        self.api: Served = stack.enter_context(query_api(directory / "api", self.environment))

    def add(self, number: int) -> None:
        """Small segments of every signal, in any order: of two hours that are kept, and of one that expires."""
        offset_ns = number * PER_ROUND_NS
        batches = []
        for name in SIGNALS:
            for shop, hour in ((self.kept, 0), (self.kept, 1), (self.old, 0)):
                start_ns = shop.start_ns + hour * HOUR_NS + offset_ns
                made = shop.batches(name, start_ns, start_ns + MINUTE_NS, per_batch_seconds=15)
                batches += [(batch, shop is self.kept) for batch in made]
        self.chance.shuffle(batches)
        for batch, is_kept in batches:
            self._ingest(batch)
            if is_kept:
                self.expected[batch.signal] += expected_rows(
                    batch.signal, REQUESTS[batch.signal].FromString(batch.data)
                )

    def _ingest(self, batch: Batch) -> None:
        self.put += 1
        key = f"otel-raw/default/{COLLECTOR}/{batch.signal}-{self.put}.binpb"
        source = SourceObject(self.store.bucket, key, sha256(batch.data).hexdigest(), len(batch.data), time.time_ns())
        raw = Raw(source, memoryview(batch.data))
        made = make_segments(SIGNALS[batch.signal], ORGANIZATION.id, COLLECTOR, [raw], self.store.put)
        assert not made.failed
        self.index.commit(Commit(made.segments, (), (), messages=commit_messages(made.segments)))

    def launch(self, service: str, failpoint: str = "") -> Process:
        self.numbers[service] += 1
        return self.stack.enter_context(
            lakerunner(
                [service, "--home", str(self.directory / service), "--listen", f"127.0.0.1:{free_port()}"],
                self.directory / f"{service}-{self.numbers[service]}.log",
                self.environment | {"LAKERUNNER_FAILPOINT": failpoint},
            )
        )

    def command(self, *arguments: str, **settings: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*LAKERUNNER, *arguments, "--home", str(self.directory / "command")],
            capture_output=True,
            text=True,
            timeout=120,
            env=clean_environment(self.environment | settings),
            check=False,
        )

    def check(self, when: str, grace_seconds: int = 3600) -> dict[str, Any]:
        """By fsck, and by a query: what holds at any moment. Files that the dead left behind are young."""
        ended = self.command("fsck", "--deep", "--json", LAKERUNNER_SWEEP_GRACE_SECONDS=str(grace_seconds))
        assert ended.returncode == 0, f"{when}: {ended.stdout}{ended.stderr}"
        report: dict[str, Any] = json.loads(ended.stdout)
        assert report["errors"] == 0, (when, report)
        assert report["complete"], (when, report)
        assert [one for one in report["findings"] if one["check"] == "rows"] == [], when
        start_ns = self.kept.start_ns
        for name, table in TABLES.items():
            query = f"select count(*) as n from {table} where timestamp >= make_timestamp_ns({start_ns})"
            found = self.api.sql(query)[0]["n"]
            assert found == self.expected[name].total(), (when, name)
        return report

    def aside(self, topics: str) -> int:
        """Works set aside of topics that hold this."""
        counts = self.index.tending.failed_counts()
        return sum(n for (topic, state), n in counts.items() if topics in topic and state == "aside")

    def live(self, name: str, frequency_ms: int = RAW) -> tuple[Segment, ...]:
        return tuple(self.index.segments.pick(ORGANIZATION.id, name, ALWAYS, frequency_ms=frequency_ms).segments)

    def busy(self) -> list[str]:
        """What there is still to do; nothing is forgotten, so what waits is told by bus, outbox or failed work."""
        found = [f"outbox {topic}: {count}" for topic, count, _ in self.index.inspect.outbox()]
        found += [
            f"{one.topic}: {one.waiting} wait, {one.claimed} held"
            for one in backlog("postgres", self.index.pool, "")
            if one.waiting or one.claimed
        ]
        found += [f"failed {key}: {count}" for key, count in self.index.tending.failed_counts().items()]
        found += [
            f"{name}: {one.id} is old"
            for name in SIGNALS
            for one in self.live(name)
            if one.time.end_ns <= self.kept.start_ns
        ]
        return found

    def promql(self, query: str, step_seconds: int, **further: str) -> Any:
        start, end = self.kept.start_ns // 10**9, (self.kept.start_ns + 2 * HOUR_NS) // 10**9
        given = {"query": query, "start": str(start), "end": str(end), "step": str(step_seconds), "stats": "all"}
        response = httpx.get(f"{self.api.url}/prometheus/api/v1/query_range", params=given | further, timeout=60)
        assert response.status_code == 200, response.text
        return response.json()["data"]


@pytest.fixture
def seed() -> int:
    return int(os.environ.get("TENDING_SEED", time.time_ns() % 1_000_000))


@pytest.fixture
def lake(tmp_path: Path, embedded_postgres_url: str, seed: int) -> Iterator[Lake]:
    database = fresh_database(embedded_postgres_url)
    with ExitStack() as stack:
        stack.callback(drop_database, database)
        yield Lake(tmp_path, database, stack, seed)


def killed(process: Process, failpoint: str) -> str:
    """Wait until the service died at the failpoint; its name."""
    wait_until(lambda: process.popen.poll() is not None, f"death {failpoint}", START_SECONDS, process.text)
    assert process.popen.returncode == -signal.SIGKILL, process.text()
    return failpoint.partition(":")[0]


def worker_killed(lake: Lake, service: str, process: Process, failpoint: str) -> str:
    """Wait until workers died at the failpoint, and the service has done with it what it can; then kill it too."""
    name = failpoint.partition(":")[0]

    def got_over_it() -> bool:
        text = process.text()
        assert process.popen.poll() is None, text
        if name in ALWAYS_DIES:
            return lake.aside(service) > 0
        first = text.find("job failed")
        return 0 < first < text.rfind(DIES_NOW_AND_THEN[name])

    wait_until(got_over_it, f"workers die at {failpoint}", START_SECONDS, process.text)
    assert "job failed" in process.text()
    process.kill()
    return name


def armed(name: str, chance: random.Random) -> str:
    """The failpoint with the count at which it kills."""
    if name in DIES_NOW_AND_THEN:
        return f"{name}:2"
    if name in ALWAYS_DIES or name.endswith(("expire", "sweep", "forget")):
        return name
    return f"{name}:{chance.randint(1, 2)}"


def test_whatever_dies_the_lake_stays_whole_and_is_tended(lake: Lake, seed: int) -> None:
    print(f"TENDING_SEED={seed}")  # shown if this fails
    hit: set[str] = set()
    boxer: Process | None = None
    for number, dies in enumerate(ROUNDS):
        lake.add(number)
        points = {service: armed(name, lake.chance) for service, name in dies.items()}
        print(f"round {number}: {points}")
        running = {
            service: lake.launch(service, failpoint) for service, failpoint in points.items() if service != "boxer"
        }
        if "boxer" in points:
            if boxer is not None:
                boxer.stop()
            hit.add(killed(lake.launch("boxer", points["boxer"]), points["boxer"]))
            lake.check(f"boxer, {points['boxer']}")
            boxer = lake.launch("boxer")
        for service, process in running.items():
            failpoint = points[service]
            if dies[service] in ALWAYS_DIES or dies[service] in DIES_NOW_AND_THEN:
                hit.add(worker_killed(lake, service, process, failpoint))
            else:
                hit.add(killed(process, failpoint))
            lake.check(f"{service}, {failpoint}")
        if lake.aside(""):
            said = lake.api.command("work", "--requeue")
            assert said.returncode == 0, said.stderr
            assert "queued again: " in said.stdout
            assert lake.aside("") == 0
    assert hit == POINTS.keys() - OF_INGEST
    tended(lake, seed)


def tended(lake: Lake, seed: int) -> None:
    """All services run, until nothing is left to do; then all is as it should be."""
    services = [lake.launch(service) for service in ("compact", "rollup", "sweeper")]
    idle(lake, seed, services)
    for process in services:
        assert process.stop() == 0, process.text()
    assert not lake.index.tending.list_aside(ORGANIZATION.id)
    swept = lake.command("sweep", LAKERUNNER_SWEEP_GRACE_SECONDS="0")
    assert swept.returncode == 0, swept.stdout + swept.stderr
    report = lake.check("at the end", grace_seconds=0)
    assert report["findings"] == []
    for name in SIGNALS:
        found = with_plain_bodies(answered_rows(lake.api.sql(QUERIES[name])))
        expected = with_plain_bodies(lake.expected[name])
        assert found == expected, f"{name}: lost {expected - found}, doubled {found - expected}"
    check_segments(lake)
    check_files(lake)
    check_answers(lake)


def with_plain_bodies(rows: Counter[str]) -> Counter[str]:
    """A body that is an object is JSON text, in which blanks and the order of keys mean nothing."""
    found: Counter[str] = Counter()
    for text, times in rows.items():
        row = json.loads(text)
        if str(row.get("message")).startswith("{"):
            row["message"] = json.loads(row["message"])
        found[json.dumps(row, sort_keys=True)] += times
    return found


def idle(lake: Lake, seed: int, services: list[Process]) -> None:
    seen: list[float] = []

    def quiet() -> bool:
        """For a moment: a message may be on its way from one to the next."""
        if lake.busy():
            seen.clear()
        else:
            seen.append(time.monotonic())
        return bool(seen) and seen[-1] - seen[0] > 2.0

    explain: Callable[[], str] = lambda: "\n".join([process.text()[-1500:] for process in services] + lake.busy())  # noqa: E731
    wait_until(quiet, f"nothing is left to do, TENDING_SEED={seed}", IDLE_SECONDS, explain)


def check_segments(lake: Lake) -> None:
    """Few, merged, and all metrics in every tier."""
    for name in SIGNALS:
        live = lake.live(name)
        ingested = 8 * len(ROUNDS)
        assert 0 < len(live) <= ingested // 3, (name, len(live))
        assert max(one.level for one in live) > 0
    for tier in (RAW, *TIERS[:-1]):
        assert all(one.rolled for one in lake.live("metrics", tier)), tier
    for tier in TIERS:
        windows = lake.live("metrics", tier)
        assert any(one.time.end_ns > lake.kept.start_ns for one in windows), tier
        last_ns = lake.old.start_ns + HOUR_NS + tier * 1_000_000  # a window's time is its end
        assert any(one.time.start_ns <= last_ns for one in windows), f"{tier}: points expire, windows stay"


def check_files(lake: Lake) -> None:
    """A file for every live segment, and none of any other."""
    there = {segment_in(meta.key) for meta in lake.store.list("db/")}
    live = {one.id for name in SIGNALS for one in lake.live(name)}
    live |= {one.id for tier in TIERS for one in lake.live("metrics", tier)}
    assert there == live


def check_answers(lake: Lake) -> None:
    for query, step, tier in (
        ("sum by (job) (rate(shop_requests_total[5m]))", 300, "5m"),
        ("sum by (job) (increase(shop_requests_total[1h]))", 3600, "1h"),
        ("max_over_time(shop_requests_total[1m])", 60, "1m"),
    ):
        rolled, raw = lake.promql(query, step), lake.promql(query, step, tier="raw")
        assert tiers_of(rolled) == {tier}, rolled["stats"]
        assert tiers_of(raw) == {"raw"}
        assert rounded(raw), query
        assert rounded(rolled) == rounded(raw), query


def tiers_of(data: Any) -> set[str]:
    return {one["tier"] for read in data["stats"]["lakerunner"]["reads"] for one in read["read"]}


def rounded(data: Any) -> dict[str, list[tuple[float, str]]]:
    return {
        json.dumps(one["metric"], sort_keys=True): [(at, f"{float(value):.12g}") for at, value in one["values"]]
        for one in data["result"]
    }
