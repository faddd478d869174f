"""A lake of many log rows to query: a day of the demo shop, made by the pipeline's own code, indexed in PostgreSQL; and
the same lake after it has tended itself.

Kept under the directory it is made in: a second run with the same size takes what is there. Beside it, in `tended`, is
its copy, with the same files under further names, on which `lakerunner up` ran until nothing was left to merge.
"""

from __future__ import annotations

import json
import os
import pickle
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

import duckdb

from lakerunner.index.commit import Commit
from lakerunner.index.embedded import EmbeddedPostgres
from lakerunner.index.index import Index
from lakerunner.model.organization import DEFAULT_ORGANIZATION
from lakerunner.model.segment import Segment
from lakerunner.model.signal import LOGS
from lakerunner.model.source import SourceObject
from lakerunner.model.time import TimeRange
from lakerunner.objects.local import LocalStore
from lakerunner.pipeline.make_segments import make_segments
from lakerunner.pipeline.read.rows import Raw
from lakerunner.services.outbox import commit_messages
from lakerunner_demo.shop import Shop
from servers.lake import lakerunner

OPENING_NS = 1_767_225_600_000_000_000  # 2026-01-01
HOUR_NS = 3_600_000_000_000
HOURS = 24
PER_FILE, FILES_AT_ONCE = 8192, 14  # about 64 MB of raw bytes: what ingest makes a segment of
RECORDS_PER_REQUEST = 7.9
ORGANIZATION = DEFAULT_ORGANIZATION.id


TEND_SECONDS, QUIET_SECONDS = 3600, 120
TENDING = {
    "LAKERUNNER_COMPACT_MAX_SECONDS": "1",  # levels 1 and 2 wait longer by a fixed factor
    "LAKERUNNER_REMINDER_SECONDS": "20",  # which sends what is alone in its hour on to be merged by day
    "LAKERUNNER_LISTER_SECONDS": "3600",
}


# The requests of OTLP of an hour of the day, which have this many rows.
Batches = Callable[[int, int], Iterator[bytes]]


@dataclass(frozen=True)
class BenchLake:
    """A lake to measure. `segments` are the live ones, in the order in which they were ingested; `url` is the index."""

    directory: Path
    store: LocalStore
    segments: tuple[Segment, ...]
    index: Index
    url: str

    @property
    def files(self) -> list[str]:
        return [str(self.directory / "store" / segment.path) for segment in self.segments]

    @property
    def unsorted_files(self) -> list[str]:
        return sorted(map(str, (self.directory / "unsorted").glob("*.parquet")))


def shop_batches(hour: int, rows: int) -> Iterator[bytes]:
    shop = Shop(seed=hour, start_ns=OPENING_NS + hour * HOUR_NS, rate=rows / 3600 / RECORDS_PER_REQUEST)
    return (batch.data for batch in shop.bulk_logs(rows, per_file=PER_FILE))


@contextmanager
def bench_lake(directory: Path, rows: int, batches: Batches = shop_batches) -> Iterator[BenchLake]:
    """Open the lake as ingest left it."""
    _made(directory, rows, batches)
    with _indexed(directory, _ingested(directory)) as (index, url):
        yield _lake(directory, index, url)


@contextmanager
def tended_lake(directory: Path) -> Iterator[BenchLake]:
    """Open the lake of `bench_lake` after compaction has finished."""
    own = directory / "tended"
    if not (own / "store").exists():
        shutil.copytree(directory / "store", own / "copying", copy_function=os.link)
        (own / "copying").rename(own / "store")
    with _indexed(own, _ingested(directory)) as (index, url):
        if not (own / "made").exists():
            _tend(own, index, url)
            (own / "made").touch()
        yield _lake(own, index, url)


def _ingested(directory: Path) -> tuple[Segment, ...]:
    return tuple(pickle.loads((directory / "segments.pickle").read_bytes()))


@contextmanager
def _indexed(directory: Path, segments: tuple[Segment, ...]) -> Iterator[tuple[Index, str]]:
    server = EmbeddedPostgres(directory / "postgres")
    url = server.start()
    index = Index.open(url, connections=4)
    try:
        index.migrate()
        if index.organizations.find(str(ORGANIZATION)) is None:
            index.organizations.create(DEFAULT_ORGANIZATION)
            index.commit(Commit(segments, (), (), messages=commit_messages(segments)))
        yield index, url
    finally:
        index.close()
        server.stop()


def _lake(directory: Path, index: Index, url: str) -> BenchLake:
    return BenchLake(directory, LocalStore(directory / "store"), _live(index), index, url)


def _live(index: Index) -> tuple[Segment, ...]:
    found = index.segments.pick(ORGANIZATION, LOGS.name, TimeRange(0, 1 << 62)).segments
    return tuple(sorted(found, key=lambda segment: segment.ingested))


def _tend(directory: Path, index: Index, url: str) -> None:
    """Run the lake until it has had nothing to do for a while."""
    environment = TENDING | {"DATABASE_URL": url, "LAKERUNNER_STORE": (directory / "store").as_uri()}
    arguments = ["up", "--home", str(directory / "home"), "--listen", "127.0.0.1:0"]
    before: tuple[Segment, ...] = ()
    with lakerunner(arguments, directory / "up.log", environment) as process:
        process.wait_for('"ready"', seconds=TEND_SECONDS)
        began = last = time.monotonic()
        while time.monotonic() - last < QUIET_SECONDS:
            if time.monotonic() - began > TEND_SECONDS:
                sys.exit(f"{directory} is not tended after {TEND_SECONDS} s")
            time.sleep(1)
            now = _live(index)
            if now != before:
                before, last = now, time.monotonic()


def _made(directory: Path, rows: int, batches: Batches) -> None:
    (directory / "store").mkdir(parents=True, exist_ok=True)
    marker = directory / "made.json"
    content = {"rows": rows} if batches is shop_batches else {"rows": rows, "lines": batches.__name__}
    if marker.exists() and json.loads(marker.read_text()) != content:
        sys.exit(f"{directory} holds another lake: {marker.read_text()}")
    if not marker.exists():
        hours = [(directory, hour, rows // HOURS + (hour < rows % HOURS), batches) for hour in range(HOURS)]
        with ProcessPoolExecutor(os.cpu_count()) as pool:
            made = [segment for part in pool.map(_hour, hours) for segment in part]
        (directory / "segments.pickle").write_bytes(pickle.dumps(made))
        _unsorted(directory, made)
        marker.write_text(json.dumps(content))


def _hour(work: tuple[Path, int, int, Batches]) -> list[Segment]:
    directory, hour, rows, batches = work
    store = LocalStore(directory / "store")
    start_ns = OPENING_NS + hour * HOUR_NS
    made: list[Segment] = []
    raws: list[Raw] = []
    for number, data in enumerate(batches(hour, rows)):
        source = SourceObject("bench", f"{hour}/{number}", sha256(data).hexdigest(), len(data), start_ns)
        raws.append(Raw(source, memoryview(data)))
        if len(raws) == FILES_AT_ONCE:
            made += make_segments(LOGS, ORGANIZATION, "bench", raws, store.put).segments
            raws = []
    return made + list(make_segments(LOGS, ORGANIZATION, "bench", raws, store.put).segments if raws else ())


def _unsorted(directory: Path, segments: list[Segment]) -> None:
    """Write the same rows in the order of arrival, in DuckDB's own row groups, as a plain COPY would."""
    (directory / "unsorted").mkdir(exist_ok=True)
    connection = duckdb.connect()
    for number, segment in enumerate(segments):
        source = directory / "store" / segment.path
        target = directory / "unsorted" / f"{number:04}.parquet"
        connection.execute(
            f"COPY (SELECT * FROM read_parquet('{source}') ORDER BY timestamp) TO '{target}' "
            "(FORMAT parquet, COMPRESSION zstd, ROW_GROUP_SIZE 122880)"
        )
