"""A small lake whose raw objects are in its store: ingested, merged and rolled up without Spark, to be damaged."""

from __future__ import annotations

import io
import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from uuid import UUID

from lakerunner.bus.topics import IngestBox
from lakerunner.commands.fsck import RepairRequest, run_repair
from lakerunner.index.commit import Commit
from lakerunner.index.segments import CollectorTier
from lakerunner.index.sources import Arrival
from lakerunner.model.segment import Segment
from lakerunner.model.source import SourceObject, SourceState
from lakerunner.model.tier import next_tier
from lakerunner.model.time import ALL_TIME
from lakerunner.objects.open import StoreAddress
from lakerunner.pipeline.compact import CompactLimits, CompactWork, compact_work
from lakerunner.pipeline.ingest import IngestLimits, ingest_group
from lakerunner.pipeline.part_segments import NO_RULES, RuleBook
from lakerunner.pipeline.rollup_job import RollupWork, rollup_work
from lakerunner.query.contract.failures import Limits
from lakerunner.query.row_text import json_rows
from lakerunner.query.sandbox.pool import Sandboxes
from lakerunner.query.segment_cache.cache import SegmentCache
from lakerunner.query.sql import Question, SqlQueries
from lakerunner.query.worker import QueryWorker
from lakerunner.query.workers import OneWorker
from suites.checked import ORG, START_NS, CheckedLake
from suites.queries import sql_queries

INGEST = IngestLimits(64 << 20, 64 << 20)
MERGE = CompactLimits(64 << 20, 1 << 30)


@dataclass
class RawLake:
    """`answers` asks SQL of the segments, as `lakerunner sql` would."""

    lake: CheckedLake
    directory: Path
    engine: SqlQueries | None = None
    number: int = 0

    def ingest(
        self,
        signal: str,
        *datas: bytes,
        ending: str = "binpb",
        organization: UUID = ORG.id,
        collector: str = "edge",
        tasks: int = 1,
        book: RuleBook = NO_RULES,
    ) -> tuple[Segment, ...]:
        """Commit one box of these raw objects; `tasks` share them, each makes segments of its own, and the rules of the
        book their parts."""
        sources = []
        for data in datas:
            self.number += 1
            key = f"otel-raw/{organization}/{collector}/{signal}-{self.number:04}.{ending}"
            self.lake.store.put(key, data)
            meta = self.lake.store.head(key)
            assert meta.etag is not None
            sources.append(SourceObject(self.lake.store.bucket, key, meta.etag, meta.size, meta.modified_ns))
        index = self.lake.index
        index.sources.announce([Arrival(one, organization, collector, signal, "t", b"") for one in sources])
        self.lake.sql("DELETE FROM lrdb.outbox")
        results = [
            ingest_group(box, self.address, INGEST, book=book)
            for box in (
                IngestBox(organization, collector, signal, tuple(sources[task::tasks])) for task in range(tasks)
            )
        ]
        whole = Commit(
            tuple(segment for one in results for segment in one.segments),
            tuple(source for one in results for source in one.done),
            tuple(failure for one in results for failure in one.failed),
            findings=tuple(found for one in results for found in one.findings),
            parts=tuple(part for one in results for part in one.parts),
        )
        assert whole.failed == ()
        index.commit(whole)
        order = [one.id for one in whole.segments]
        return tuple(sorted(index.segments.get(organization, order), key=lambda one: order.index(one.id)))

    @property
    def address(self) -> StoreAddress:
        return StoreAddress(self.lake.settings.store_url)

    def raw_keys(self) -> list[str]:
        return sorted(meta.key for meta in self.lake.store.list("otel-raw/"))

    def states(self) -> list[SourceState]:
        return [one.state for one in self.lake.index.sources.list(None, limit=1000)]

    def live(self, signal: str, frequency_ms: int = 0, organization: UUID = ORG.id) -> list[Segment]:
        return self.lake.index.inspect.tier(CollectorTier(organization, "edge", signal, frequency_ms), ALL_TIME)

    def merge(self, segments: Sequence[Segment], max_bytes: int = 1 << 30) -> tuple[Segment, ...]:
        """Merge these into a segment of the level above the highest of theirs, or into several."""
        ids = [one.id for one in segments]
        found = sorted(self.lake.index.segments.get(ORG.id, ids), key=lambda one: one.ingested)
        of, level = found[0], max(one.level for one in found) + 1
        work = CompactWork(ORG.id, of.collector, of.signal, of.frequency_ms, level, tuple(found))
        made = compact_work(work, self.address, replace(MERGE, max_bytes=max_bytes))
        assert made.error == ""
        self.lake.index.commit(Commit(made.segments, (), (), tuple(ids)))
        return made.segments

    def roll_up(self, frequency_ms: int) -> tuple[Segment, ...]:
        """The windows of all segments of the tier that are in none yet."""
        touched = tuple(one for one in self.live("metrics", frequency_ms) if not one.rolled)
        target = next_tier(frequency_ms)
        assert target is not None
        work = RollupWork(ORG.id, "edge", frequency_ms, target, touched, touched)
        sources = self.lake.index.inspect.tier(CollectorTier(ORG.id, "edge", "metrics", frequency_ms), work.span)
        made = rollup_work(replace(work, sources=tuple(sources)), self.address, MERGE)
        assert made.error == ""
        ids = tuple(one.id for one in touched)
        self.lake.index.commit(Commit(made.segments, (), (), rolled=ids, rolled_of=ORG.id))
        return made.segments

    def lose(self, *segments: Segment) -> None:
        """Delete their files, and what stands beside them."""
        for one in segments:
            for key in (one.path, *map(one.side_path, one.statistics["side_bytes"])):
                self.lake.path(key).unlink()

    def answers(self, *tables: str) -> list[list[str]]:
        """All rows of these tables, as JSON."""
        if self.engine is None:
            cache = SegmentCache(self.lake.store, self.directory / "cache", 1 << 30)
            sandboxes = Sandboxes(Limits("500MB", 60.0, 1_000_000), threads=1, spill_directory=self.directory / "spill")
            self.engine = sql_queries(self.lake.index, OneWorker(QueryWorker(cache, sandboxes)), sandboxes)
        return [
            sorted(
                json.dumps(json.loads(row), sort_keys=True)
                for batch in self.engine.sql(ORG.id, Question(f"SELECT * FROM {table}", START_NS))
                for row in json_rows(batch)
            )
            for table in tables
        ]

    def repair(self, **request: Any) -> tuple[int, list[str]]:
        """The exit code, and the lines that are printed."""
        out, errors = io.StringIO(), io.StringIO()
        code = run_repair(self.lake.settings, RepairRequest(**request), out, errors)
        assert errors.getvalue() == "", errors.getvalue()
        return code, out.getvalue().splitlines()

    def errors(self) -> list[tuple[str, str, str, str]]:
        """What `fsck --deep` calls an error."""
        return [one for one in self.lake.found(deep=True) if one[0] == "error"]
