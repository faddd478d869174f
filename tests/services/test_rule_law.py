"""Whatever happens to a lake with rules: for each current version the live parts are exactly what it makes of the lines
of the live segments that it covers."""

from __future__ import annotations

import io
import random
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow.parquet as pq
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lakerunner.bus.topics import CompactBox
from lakerunner.index.commit import Commit
from lakerunner.index.index import Index
from lakerunner.index.tending import Retry
from lakerunner.model.merging import MergeLimits
from lakerunner.model.organization import Organization
from lakerunner.model.source import SourceObject
from lakerunner.model.streams.stream_rules import StreamRules
from lakerunner.model.time import ALL_TIME
from lakerunner.objects.open import StoreAddress
from lakerunner.pipeline.compact import CompactLimits, compact_work
from lakerunner.pipeline.materialize import Materialized, MaterializeLimits, MaterializeWork, materialize_work
from lakerunner.pipeline.part_segments import NO_RULES, RuleBook
from lakerunner.services.compact import Compaction
from lakerunner.services.materialize import Materialize, MaterializeParts
from lakerunner.services.work import WorkParts
from servers.postgres import empty_index
from suites.covered_lines import BY_SERVICE, BYTES, Files, Line, expected_parts, random_lines, request
from suites.ingested import ORGANIZATION, START

OWNER = Organization(ORGANIZATION, "acme")
MERGE = MergeLimits(max_segments=32, target_bytes=1 << 30)
LIMITS = CompactLimits(memory=64 << 20, max_bytes=1 << 30)
RULES = {one.rule.name: one.rule for one in (BY_SERVICE, BYTES)}
NAME = st.sampled_from(sorted(RULES))
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("send"), st.integers(0, 10**6)),
        st.tuples(st.just("send_again"), st.integers(0, 9)),
        st.tuples(st.just("merge"), st.integers(0, 2)),
        st.tuples(st.just("put_rule"), NAME),
        st.tuples(st.sampled_from(["drop_rule", "switch_rule", "pause_rule"]), NAME),
        st.tuples(st.just("change_streams"), st.booleans()),
        st.tuples(st.just("cover_history"), NAME),
        st.tuples(st.just("materialize"), st.integers(1, 3)),
    ),
    min_size=4,
    max_size=14,
)


class RuledLake:
    """A lake without Spark: each step does what the services do, by their own code."""

    def __init__(self, index: Index, directory: Path) -> None:
        self.index = index
        self.files = Files(directory)
        self.sent: list[bytes] = []
        self.number = 0
        spark: Any = nullcontext  # of None: the jobs need no session
        self.compaction = Compaction(
            index,
            spark,
            self.files.address,
            MERGE,
            LIMITS,
            lambda _spark, works, address, limits: [compact_work(work, address, limits) for work in works],
        )

    def send(self, seed: int) -> None:
        self.sent.append(request(random_lines(random.Random(seed), 12, last=40)))
        self._ingest(self.sent[-1])

    def send_again(self, place: int) -> None:
        if self.sent:
            self._ingest(self.sent[place % len(self.sent)])

    def _ingest(self, data: bytes) -> None:
        self.number += 1
        source: SourceObject = self.files.put(f"logs_{self.number}", data)
        versions = self.index.metric_rules.active(ORGANIZATION, "logs")
        streams = self.index.organizations.stream_rules(ORGANIZATION)
        made = self.files.ingest(source, book=RuleBook(versions, streams) if versions else NO_RULES)
        self.index.commit(Commit(made.segments, made.done, made.failed, parts=made.parts))

    def merge(self, level: int) -> None:
        live = self.index.segments.pick(ORGANIZATION, "logs", ALL_TIME).segments
        box = CompactBox(ORGANIZATION, "c", "logs", 0, level, tuple(one.id for one in live))
        works = self.compaction.plan(box)
        for work, outcome in zip(works, self.compaction.run(works), strict=True):
            assert outcome.error == ""
            self.compaction.commit(work, outcome)

    def put_rule(self, name: str) -> None:
        self.index.metric_rules.put(ORGANIZATION, RULES[name])

    def drop_rule(self, name: str) -> None:
        if name in self._current():
            self.index.metric_rules.drop(ORGANIZATION, name)

    def switch_rule(self, name: str) -> None:
        if version := self._current().get(name):
            self.index.metric_rules.set_enabled(ORGANIZATION, name, not version.rule.enabled)

    def pause_rule(self, name: str) -> None:
        if version := self._current().get(name):
            self.index.metric_rules.pause(version.id, "too many series")

    def cover_history(self, name: str) -> None:
        if name in self._current():
            self.index.metric_rules.set_since(ORGANIZATION, name, 0)

    def materialize(self, at_once: int) -> None:
        work = WorkParts(self.index.tending, lambda: None, Retry(3, 10.0), at_once)
        spark: Any = nullcontext
        limits = MaterializeLimits(LIMITS.memory)
        parts = MaterializeParts(self.index, spark, self.files.address, limits, work, job=_materialize)
        Materialize(parts, lambda _: None).step()

    def change_streams(self, levels: bool) -> None:
        self.index.organizations.set_stream_rules(ORGANIZATION, StreamRules(detect_levels=levels))

    def _current(self) -> dict[str, Any]:
        return {one.rule.name: one for one in self.index.metric_rules.current(ORGANIZATION)}

    def check(self) -> None:
        segments = self.index.segments.pick(ORGANIZATION, "logs", ALL_TIME).segments
        parts = self.index.segments.pick(ORGANIZATION, "metrics", ALL_TIME).segments
        for version in self._current().values():
            lines = [line for one in segments if version.id in one.rule_set for line in self._lines(one.path)]
            own = [one for one in parts if one.collector == version.collector]
            assert self.files.parts(*own) == expected_parts(lines, version)

    def _lines(self, path: str) -> list[Line]:
        table = pq.read_table(io.BytesIO(self.files.read(path)), columns=["service_name", "timestamp", "message"])
        seconds = [(time - START) // 10**9 for time in table["timestamp"].cast("int64").to_pylist()]
        return list(zip(table["service_name"].to_pylist(), seconds, table["message"].to_pylist(), strict=True))


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(STEPS)
def test_parts_are_what_rules_make_of_the_lines_they_cover(
    embedded_postgres_url: str, steps: list[tuple[str, Any]]
) -> None:
    with empty_index(embedded_postgres_url, OWNER) as index, TemporaryDirectory() as directory:
        lake = RuledLake(index, Path(directory))
        lake.put_rule(BY_SERVICE.rule.name)
        lake.put_rule(BYTES.rule.name)
        for name, value in steps:
            getattr(lake, name)(value)
            lake.check()
        lake.merge(0)
        lake.merge(1)
        lake.check()
        active = lake.index.metric_rules.active(ORGANIZATION, "logs")
        for version in active:
            lake.cover_history(version.rule.name)
        lake.materialize(100)
        lake.check()
        coverage = lake.index.rule_history.coverage(ORGANIZATION)
        assert all(coverage[version.id].is_complete for version in active)
        lake.merge(2)
        lake.check()


def _materialize(
    _spark: Any, works: Sequence[MaterializeWork], address: StoreAddress, limits: MaterializeLimits
) -> list[Materialized]:
    return [materialize_work(work, address, limits) for work in works]
