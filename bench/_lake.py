"""A lake of many log rows to query: a day of the demo shop, made by the pipeline's own code, indexed in PostgreSQL.

Kept under the directory it is made in: a second run with the same size takes what is there.
"""

from __future__ import annotations

import json
import os
import pickle
import sys
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

import duckdb

from lakerunner.demo.shop import Shop
from lakerunner.index.commit import Commit
from lakerunner.index.embedded import EmbeddedPostgres
from lakerunner.index.index import Index
from lakerunner.model.organization import DEFAULT_ORGANIZATION
from lakerunner.model.segment import Segment
from lakerunner.model.signal import LOGS
from lakerunner.model.source import SourceObject
from lakerunner.objects.local import LocalStore
from lakerunner.pipeline.read.rows import Raw
from lakerunner.pipeline.segments import make_segments

OPENING_NS = 1_767_225_600_000_000_000  # 2026-01-01
HOUR_NS = 3_600_000_000_000
HOURS = 24
PER_FILE, FILES_AT_ONCE = 8192, 14  # about 64 MB of raw bytes: what ingest makes a segment of
RECORDS_PER_REQUEST = 7.9
ORGANIZATION = DEFAULT_ORGANIZATION.id


@dataclass(frozen=True)
class BenchLake:
    directory: Path
    store: LocalStore
    segments: tuple[Segment, ...]
    index: Index

    @property
    def files(self) -> list[str]:
        return [str(self.directory / "store" / segment.path) for segment in self.segments]

    @property
    def unsorted_files(self) -> list[str]:
        return sorted(map(str, (self.directory / "unsorted").glob("*.parquet")))


@contextmanager
def bench_lake(directory: Path, rows: int) -> Iterator[BenchLake]:
    store = _made(directory, rows)
    segments = tuple(pickle.loads((directory / "segments.pickle").read_bytes()))
    server = EmbeddedPostgres(directory / "postgres")
    index = Index.open(server.start(), connections=4)
    try:
        index.migrate()
        if index.organizations.find(str(ORGANIZATION)) is None:
            index.organizations.create(DEFAULT_ORGANIZATION)
            index.commit(Commit(segments, (), ()))
        yield BenchLake(directory, store, segments, index)
    finally:
        index.close()
        server.stop()


def _made(directory: Path, rows: int) -> LocalStore:
    (directory / "store").mkdir(parents=True, exist_ok=True)
    marker = directory / "made.json"
    if marker.exists() and json.loads(marker.read_text()) != {"rows": rows}:
        sys.exit(f"{directory} holds another lake: {marker.read_text()}")
    if not marker.exists():
        hours = [(directory, hour, rows // HOURS + (hour < rows % HOURS)) for hour in range(HOURS)]
        with ProcessPoolExecutor(os.cpu_count()) as pool:
            made = [segment for part in pool.map(_hour, hours) for segment in part]
        (directory / "segments.pickle").write_bytes(pickle.dumps(made))
        _unsorted(directory, made)
        marker.write_text(json.dumps({"rows": rows}))
    return LocalStore(directory / "store")


def _hour(work: tuple[Path, int, int]) -> list[Segment]:
    directory, hour, rows = work
    store = LocalStore(directory / "store")
    start_ns = OPENING_NS + hour * HOUR_NS
    shop = Shop(seed=hour, start_ns=start_ns, rate=rows / 3600 / RECORDS_PER_REQUEST)
    made: list[Segment] = []
    raws: list[Raw] = []
    for number, batch in enumerate(shop.bulk_logs(rows, per_file=PER_FILE)):
        source = SourceObject("bench", f"{hour}/{number}", sha256(batch.data).hexdigest(), len(batch.data), start_ns)
        raws.append(Raw(source, memoryview(batch.data)))
        if len(raws) == FILES_AT_ONCE:
            made += make_segments(LOGS, ORGANIZATION, "bench", raws, store.put).segments
            raws = []
    return made + list(make_segments(LOGS, ORGANIZATION, "bench", raws, store.put).segments if raws else ())


def _unsorted(directory: Path, segments: list[Segment]) -> None:
    """The same rows as they arrived, in DuckDB's own row groups: what a plain COPY of the records would be."""
    (directory / "unsorted").mkdir(exist_ok=True)
    connection = duckdb.connect()
    for number, segment in enumerate(segments):
        source = directory / "store" / segment.path
        target = directory / "unsorted" / f"{number:04}.parquet"
        connection.execute(
            f"COPY (SELECT * FROM read_parquet('{source}') ORDER BY timestamp) TO '{target}' "
            "(FORMAT parquet, COMPRESSION zstd, ROW_GROUP_SIZE 122880)"
        )
