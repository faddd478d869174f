"""A week of telemetry that came in small files, before and after the lake has tended itself: what is there, and what
three typical questions read and take.

    errors      errors of a service by hour, in the last day (SQL over logs)
    trace       the spans of one trace, anywhere in the week (SQL over spans)
    requests    requests a second by service over the week, an hour a step (PromQL)

The demo shop exports a file per signal every few minutes; each is ingested by itself, by the code that a Spark task
runs, into a SeaweedFS on this machine. Then `lakerunner up` compacts and rolls up until nothing is left to do, as a
user would run it. Each question meets an empty cache, and is then asked again; answers must be the same as before.

    python bench/week.py [--days 7] [--minutes 5] [--rate 0.2]
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from hashlib import sha256
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from lakerunner.index.commit import Commit
from lakerunner.index.embedded import EmbeddedPostgres
from lakerunner.index.index import Index
from lakerunner.model.organization import DEFAULT_ORGANIZATION
from lakerunner.model.signal import SIGNALS
from lakerunner.model.source import SourceObject
from lakerunner.model.tier import TIER_NAMES, TIERS
from lakerunner.model.time import HOUR_NS, MINUTE_NS, TimeRange
from lakerunner.objects.open import StoreAddress, shared_store
from lakerunner.pipeline.ingest import BoxResult
from lakerunner.pipeline.make_segments import make_segments
from lakerunner.pipeline.read.rows import Raw
from lakerunner.promql.plan import PromqlQuestion
from lakerunner.query.contract.account import Account
from lakerunner.query.sql import Question
from lakerunner.query.workers import OneWorker
from lakerunner.series.values import Steps
from lakerunner.services.outbox import commit_messages
from lakerunner.services.parts import open_engine, open_metrics, open_sandboxes, open_worker
from lakerunner.services.query_counts import CountedSqlQueries
from lakerunner.settings import Settings
from lakerunner_demo.shop import Shop
from servers.lake import lakerunner
from servers.seaweedfs import seaweedfs

DAY_NS = 24 * HOUR_NS
OPENING_NS = 1_767_225_600_000_000_000  # 2026-01-01
ORGANIZATION = DEFAULT_ORGANIZATION.id
COLLECTOR = "bench"
TEND_SECONDS = 3600
QUIET_SECONDS = 90


@dataclass(frozen=True)
class Asked:
    """What a query took with an empty cache, and again."""

    answer: Any
    segments: int
    bytes: int
    cold: float
    warm: float


@dataclass(frozen=True)
class Week:
    days: int
    minutes: int
    rate: float

    @property
    def end_ns(self) -> int:
        return OPENING_NS + self.days * DAY_NS


def day_of(work: tuple[Week, StoreAddress, str, int]) -> list[BoxResult]:
    """Ingest every file of a day and signal by itself."""
    week, address, signal, day = work
    store = shared_store(address)
    start_ns = OPENING_NS + day * DAY_NS
    shop = Shop(seed=7, start_ns=OPENING_NS, rate=week.rate)
    made = []
    for batch in shop.batches(signal, start_ns, start_ns + DAY_NS, per_batch_seconds=week.minutes * 60):
        key = f"otel-raw/default/{COLLECTOR}/{signal}-{batch.start_ns}.binpb"
        etag = sha256(batch.data).hexdigest()
        source = SourceObject(store.bucket, key, etag, len(batch.data), batch.end_ns)
        found = make_segments(
            SIGNALS[signal], ORGANIZATION, COLLECTOR, [Raw(source, memoryview(batch.data))], store.put
        )
        made.append(BoxResult(found.segments, found.done, found.failed))
    return made


def ingest(week: Week, address: StoreAddress, index: Index) -> None:
    days = [(week, address, signal, day) for day in range(week.days) for signal in SIGNALS]
    with ProcessPoolExecutor(os.cpu_count()) as pool:
        for made in pool.map(day_of, days):
            for result in made:
                messages = commit_messages(result.segments)
                index.commit(Commit(result.segments, result.done, result.failed, messages=messages))


def tend(environment: dict[str, str], home: Path, index: Index) -> float:
    """Run the lake until it has nothing to do; return the seconds that took."""
    arguments = ["up", "--home", str(home), "--listen", "127.0.0.1:0"]
    began = last = time.monotonic()
    before: Any = None
    with lakerunner(arguments, home.parent / "up.log", environment) as process:
        process.wait_for('"ready"')
        while time.monotonic() - began < TEND_SECONDS and time.monotonic() - last < QUIET_SECONDS:
            time.sleep(1)
            now = live(index)
            if now != before:
                before, last = now, time.monotonic()
        process.stop()
    return last - began


def live(index: Index) -> dict[tuple[str, int, int], tuple[int, int]]:
    """Return (segments, bytes) by signal, frequency and level."""
    found: Counter[tuple[str, int, int]] = Counter()
    size: Counter[tuple[str, int, int]] = Counter()
    for signal in SIGNALS:
        for frequency in (0, *TIERS) if signal == "metrics" else (0,):
            for one in index.segments.pick(
                ORGANIZATION, signal, TimeRange(0, 1 << 62), frequency_ms=frequency
            ).segments:
                found[signal, frequency, one.level] += 1
                size[signal, frequency, one.level] += one.bytes
    return {key: (count, size[key]) for key, count in sorted(found.items())}


def ask_all(week: Week, settings: Settings, index: Index, store: Any) -> Iterator[tuple[str, Asked]]:
    errors = (
        "SELECT date_trunc('hour', timestamp) AS hour, count(*) AS n FROM logs WHERE service_name = 'checkout' "
        f"AND severity = 'ERROR' AND timestamp >= make_timestamp_ns({week.end_ns - DAY_NS}) GROUP BY ALL ORDER BY hour"
    )
    trace = _a_trace(settings, index, store, week)
    spans = f"SELECT name, service_name, duration FROM spans WHERE trace_id = '{trace}' ORDER BY ALL"
    requests = "sum by (job) (rate(shop_requests_total[1h]))"
    steps = Steps((OPENING_NS + HOUR_NS) // 10**6, week.end_ns // 10**6, HOUR_NS // 10**6)
    for name, ask in (
        ("errors", lambda engines: _sql(engines[0], errors, week)),
        ("trace", lambda engines: _sql(engines[0], spans, week)),
        ("requests", lambda engines: _promql(engines[1], requests, steps, week)),
    ):
        yield name, _asked(ask, settings, index, store)


def _asked(ask: Callable[[Any], tuple[Any, Account]], settings: Settings, index: Index, store: Any) -> Asked:
    with tempfile.TemporaryDirectory() as cache:
        here = replace(settings, home=Path(cache), result_cache_bytes=0)
        worker = OneWorker(open_worker(here, store))
        sandboxes = open_sandboxes(here)
        engine = open_engine(here, index, worker, sandboxes)
        engines = CountedSqlQueries(engine, sandboxes), open_metrics(here, engine)
        cold, (answer, account) = _timed(lambda: ask(engines))
        warm = min(_timed(lambda: ask(engines))[0] for _ in range(3))
        return Asked(answer, account.read, account.bytes_fetched, cold, warm)


def _timed(work: Callable[[], Any]) -> tuple[float, Any]:
    began = time.perf_counter()
    answer = work()
    return time.perf_counter() - began, answer


def _sql(engine: Any, text: str, week: Week) -> tuple[Any, Account]:
    answer = engine.sql(ORGANIZATION, Question(text, week.end_ns))
    rows = [row for batch in answer for row in batch.to_pylist()]
    return rows, answer.account


def _promql(engine: Any, text: str, steps: Steps, week: Week) -> tuple[Any, Account]:
    answer = engine.promql(ORGANIZATION, PromqlQuestion(text, steps, False, week.end_ns))
    (group,) = list(answer)
    vector = group.value
    rows = {
        str(labels): [f"{value:.12g}" for value in values]
        for labels, values in zip(vector.labels, vector.values, strict=True)
    }
    return rows, answer.account


def _a_trace(settings: Settings, index: Index, store: Any, week: Week) -> str:
    with tempfile.TemporaryDirectory() as cache:
        here = replace(settings, home=Path(cache))
        sandboxes = open_sandboxes(here)
        engine = CountedSqlQueries(open_engine(here, index, OneWorker(open_worker(here, store)), sandboxes), sandboxes)
        start = OPENING_NS + week.days * DAY_NS // 2
        text = (
            f"SELECT min(trace_id) AS id FROM spans WHERE timestamp >= make_timestamp_ns({start}) "
            f"AND timestamp < make_timestamp_ns({start + MINUTE_NS})"
        )
        rows, _ = _sql(engine, text, week)
        return str(rows[0]["id"])


def show(title: str, found: dict[tuple[str, int, int], tuple[int, int]], week: Week) -> None:
    print(f"\n{title}")
    for (signal, frequency, level), (count, size) in found.items():
        what = f"{signal} {TIER_NAMES[frequency]}" if frequency else signal
        print(f"  {what:12} level {level}  {count:6} segments  {count / week.days:8.1f} a day  {size / 1e6:9.1f} MB")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--days", type=int, default=7)
    parser.add_argument("--minutes", type=int, default=5, help="of the shop's time in a file")
    parser.add_argument("--rate", type=float, default=0.2, help="requests a second")
    given = parser.parse_args()
    week = Week(given.days, given.minutes, given.rate)
    with tempfile.TemporaryDirectory() as directory, seaweedfs(Path(directory) / "s3") as s3:
        compare(week, Path(directory), s3.address("lake"))


def compare(week: Week, directory: Path, address: StoreAddress) -> None:
    options = ",".join(f"{name}={value}" for name, value in address.options)
    settings = Settings(home=directory, store=address.url, store_options=dict(address.options))
    server = EmbeddedPostgres(directory / "postgres")
    url = server.start()
    index = Index.open(url, connections=4)
    try:
        index.migrate()
        index.organizations.create(DEFAULT_ORGANIZATION)
        seconds, _ = _timed(lambda: ingest(week, address, index))
        before = live(index)
        print(f"{week.days} days in files of {week.minutes} minutes, ingested in {seconds:.0f} s")
        show("before", before, week)
        store = shared_store(address)
        first = dict(ask_all(week, settings, index, store))
        environment = {
            "DATABASE_URL": url,
            "LAKERUNNER_STORE": address.url,
            "LAKERUNNER_STORE_OPTIONS": options,
            "LAKERUNNER_COMPACT_MAX_SECONDS": "0.5",  # levels 1 and 2 wait longer by a fixed factor
            "LAKERUNNER_ROLLUP_MAX_SECONDS": "1",
            "LAKERUNNER_REMINDER_SECONDS": "20",  # which sends a lone segment of its hour on to be merged by day
            "LAKERUNNER_LISTER_SECONDS": "3600",
            "LAKERUNNER_SPARK_MASTER": "local[8]",  # of which merges and rollups take a quarter each
        }
        took = tend(environment, directory / "home", index)
        print(f"\ntended in {took:.0f} s")
        show("after", live(index), week)
        second = dict(ask_all(week, settings, index, store))
    finally:
        index.close()
        server.stop()
    report(first, second)


def report(first: dict[str, Asked], second: dict[str, Asked]) -> None:
    print(f"\n{'':10}{'segments':>18}{'bytes read':>28}{'time, empty cache':>26}{'asked again':>26}")
    for name, old in first.items():
        new = second[name]
        print(
            f"{name:10}{old.segments:>8} -> {new.segments:<6}"
            f"{old.bytes / 1e6:>10.2f} -> {new.bytes / 1e6:<7.2f}{_ratio(new.bytes, old.bytes)}"
            f"{old.cold * 1e3:>9.0f} -> {new.cold * 1e3:<6.0f} ms {_ratio(new.cold, old.cold)}"
            f"{old.warm * 1e3:>9.0f} -> {new.warm * 1e3:<6.0f} ms {_ratio(new.warm, old.warm)}"
        )
        if old.answer != new.answer:
            sys.exit(f"{name}: the answers differ: {str(old.answer)[:300]} and {str(new.answer)[:300]}")
    print("answers are the same before and after")


def _ratio(new: float, old: float) -> str:
    return f"{new / old:.2f}x" if old else "-"


if __name__ == "__main__":
    main()
