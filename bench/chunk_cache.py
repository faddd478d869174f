"""What a worker fetches of segments in an S3 server, against fetching them whole: bytes and time, in one run.

    one column    count by severity
    service       messages of one service
    needle        an id that one message has
    absent        words that none has
    trace         messages of one trace

Segments are the demo shop's logs, made by the pipeline's own code, in a SeaweedFS on this machine: its requests take
a millisecond, not the twenty of a real store. Each question meets an empty cache, and is then asked again; its time is
that until all it reads is here. The best of three turns counts.

    python bench/chunk_cache.py [--rows 1000000]
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from dataclasses import dataclass, replace
from hashlib import sha256
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

import pyarrow.parquet as pq

from lakerunner.model.condition import Contains, Equals
from lakerunner.model.organization import DEFAULT_ORGANIZATION
from lakerunner.model.segment import Segment
from lakerunner.model.signal import LOGS
from lakerunner.model.source import SourceObject
from lakerunner.model.time import ALL_TIME
from lakerunner.objects.open import open_store
from lakerunner.objects.store import ObjectStore
from lakerunner.pipeline.make_segments import make_segments
from lakerunner.pipeline.read.rows import Raw
from lakerunner.plan.operator import SqlRows
from lakerunner.plan.plan import Leaf
from lakerunner.plan.scan import Scan, id_column
from lakerunner.query.contract.account import Account
from lakerunner.query.contract.failures import Limits
from lakerunner.query.sandbox.pool import Sandboxes
from lakerunner.query.segment_cache.cache import SegmentCache
from lakerunner.query.unit import Unit
from lakerunner.query.worker import QueryWorker
from lakerunner_demo.shop import Shop
from servers.seaweedfs import seaweedfs

OPENING_NS = 1_767_225_600_000_000_000  # 2026-01-01
ORGANIZATION = DEFAULT_ORGANIZATION.id
PER_FILE, TURNS = 250_000, 3
SCAN = Scan("s", "logs", ALL_TIME, ("message",))


@dataclass(frozen=True)
class Asked:
    name: str
    scan: Scan
    sql: str


def questions(needle: str, trace: str) -> list[Asked]:
    def text(name: str, literal: str) -> Asked:
        scan = replace(SCAN, conditions=(Contains("message", literal),))
        return Asked(name, scan, f"SELECT count(*) FROM s WHERE contains(message, '{literal}')")

    by_service = replace(SCAN, columns=("message", "service_name"), conditions=(Equals("service_name", ("checkout",)),))
    by_trace = replace(SCAN, ids=("trace_id",), conditions=(Equals("trace_id", (trace,)),))
    return [
        Asked("one column", replace(SCAN, columns=("severity",)), "SELECT severity, count(*) FROM s GROUP BY 1"),
        Asked("service", by_service, "SELECT max(message) FROM s WHERE service_name = 'checkout'"),
        text("needle", needle),
        text("absent", "no such words in here"),
        Asked("trace", by_trace, f"SELECT message FROM s WHERE \"{id_column('s', 'trace_id')}\" = from_hex('{trace}')"),
    ]


def made(store: ObjectStore, rows: int) -> list[Segment]:
    shop = Shop(seed=7, start_ns=OPENING_NS, rate=rows / 3600 / 8)
    found: list[Segment] = []
    for number, batch in enumerate(shop.bulk_logs(rows, per_file=PER_FILE)):
        source = SourceObject("bench", str(number), sha256(batch.data).hexdigest(), len(batch.data), OPENING_NS)
        found += make_segments(LOGS, ORGANIZATION, "bench", [Raw(source, memoryview(batch.data))], store.put).segments
    return found


def whole(store: ObjectStore, segments: list[Segment], directory: Path) -> float:
    """Return the time to fetch all segments whole, with the cache's own requests."""
    began = time.perf_counter()
    cache = SegmentCache(store, directory, 1 << 34)
    everything = replace(SCAN, columns=("message", "attributes", "resource_attrs", "trace_id"))
    with cache.hold(everything, segments) as held:
        seconds = time.perf_counter() - began
        assert held.account.bytes_fetched == sum(segment.bytes for segment in segments), "not whole"
    cache.close()
    return seconds


def ask(worker: QueryWorker, asked: Asked, segments: list[Segment]) -> Account:
    answer = worker.run(Unit(ORGANIZATION, Leaf(asked.scan, SqlRows(asked.sql)), tuple(segments)))
    list(answer)
    return answer.account


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=1_000_000)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="lakerunner-bench-") as scratch, seaweedfs(Path(scratch, "s3")) as server:
        store = open_store(server.address("bench"))
        segments = made(store, options.rows)
        size = sum(segment.bytes for segment in segments)
        sandboxes = Sandboxes(Limits("2GB", 300.0, 10**9), threads=2, spill_directory=Path(scratch, "spill"))
        fetch = min(whole(store, segments, Path(scratch, f"whole{turn}")) for turn in range(TURNS))
        print(
            f"{options.rows} rows in {len(segments)} segments, {size / 1e6:.1f} MB; all fetched in {fetch * 1e3:.0f} ms"
        )
        for asked in questions(*needles(store, segments[0], Path(scratch))):
            turns = [ask_twice(store, sandboxes, asked, segments) for _ in range(TURNS)]
            cold, hot = (min(turn[number].seconds["fetch"] for turn in turns) for number in (0, 1))
            report(asked, turns[0][0], size, (cold, hot, fetch))


def ask_twice(store: ObjectStore, sandboxes: Sandboxes, asked: Asked, segments: list[Segment]) -> list[Account]:
    """Measure with an empty cache, then again."""
    with tempfile.TemporaryDirectory(prefix="lakerunner-bench-") as directory:
        cache = SegmentCache(store, Path(directory, "cache"), 1 << 34)
        worker = QueryWorker(cache, sandboxes)
        accounts = [ask(worker, asked, segments) for _ in range(2)]
        cache.close()
    return accounts


def report(asked: Asked, account: Account, size: int, seconds: tuple[float, float, float]) -> None:
    cold, hot, fetch = seconds
    print(
        f"{asked.name:12} {account.bytes_fetched / 1e6:7.2f} MB fetched: 1/{size / max(account.bytes_fetched, 1):.1f} "
        f"of the bytes, {cold * 1e3:6.1f} ms: 1/{fetch / cold:.1f} of the time; again {hot * 1e3:5.1f} ms; "
        f"left out: segments {dict(account.pruned)}, "
        f"of {account.row_groups} row groups {dict(account.row_groups_pruned)}"
    )


def needles(store: ObjectStore, segment: Segment, directory: Path) -> tuple[str, str]:
    """Return the end of the longest message, and a trace id."""
    path = directory / "one.parquet"
    path.write_bytes(store.get(segment.path, max_bytes=segment.bytes))
    messages, traces = pq.read_table(path, columns=["message", "trace_id"]).columns
    longest = max(messages.to_pylist(), key=len)[-40:].replace("'", "''")
    return longest, next(trace for trace in traces.to_pylist() if trace).hex()


if __name__ == "__main__":
    main()
