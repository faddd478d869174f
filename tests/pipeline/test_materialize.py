"""Rules over stored segments: the parts are those that ingest would have made, to the byte."""

from __future__ import annotations

import io
import random
from collections.abc import Sequence
from dataclasses import replace

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from conformance.logql_push import LIMITS
from fuzz.logql.lakes import exported, framed, pushed, small_row_groups
from fuzz.logql.lines import Delivery, random_deliveries
from lakerunner.bus.topics import IngestBox
from lakerunner.model.metric_rules.metric_rule import RuleVersion
from lakerunner.model.segment import Segment
from lakerunner.model.source import SourceObject
from lakerunner.pipeline.ingest import BoxResult, ingest_group
from lakerunner.pipeline.materialize import MaterializeLimits, MaterializeWork, materialize_work
from lakerunner.pipeline.part_segments import NO_RULES, RuleBook
from lakerunner.pipeline.steps.stream_columns import DERIVED
from suites.covered_lines import BOOK, BY_SERVICE, BYTES, Files, random_lines, request
from suites.ingested import ORGANIZATION
from suites.rule_values import version

MEMORY = MaterializeLimits(memory=64 << 20)
LITTLE = MaterializeLimits(memory=1)  # the fewest rows at a time
RULES = (
    version(1, selector='{app=~".+"}', dimensions=("app", "detected_level")),
    version(2, "bytes", '{service_name=~"cart|pay"} |= "a"', dimensions=("env",)),
    version(3, "sum(bytes(size))", '{service_name=~".+"} | logfmt | json', dimensions=("method",)),
    version(4, "histogram(duration(took))", '{service_name=~".+"} | json', dimensions=("service_name",)),
    version(5, "sum(status)", '{env="prod"} | json | status >= 200', dimensions=("status",)),
    version(6, selector='{service_name="nobody"}'),
)


def ingested(files: Files, deliveries: Sequence[Delivery], book: RuleBook) -> BoxResult:
    sources = []
    for number, one in enumerate(deliveries):
        ending, data = ("lokipb", framed(pushed(one))) if one.kind == "loki" else ("binpb", exported(one))
        key = f"otel-raw/{ORGANIZATION}/c/logs-{number}.{ending}"
        files.store.put(key, data)
        meta = files.store.head(key)
        sources.append(SourceObject(files.store.bucket, key, meta.etag or "", meta.size, meta.modified_ns))
    result = ingest_group(IngestBox(ORGANIZATION, "c", "logs", tuple(sources)), files.address, LIMITS, book=book)
    assert result.failed == ()
    return result


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Files:
    return Files(tmp_path_factory.mktemp("history"))


@pytest.mark.heavy
@settings(max_examples=15)
@given(st.integers(0, 10**6), st.sets(st.sampled_from(RULES), min_size=1), st.sampled_from([MEMORY, LITTLE]))
def test_a_stored_segment_gives_the_parts_that_ingest_would_have_made(
    files: Files, seed: int, rules: set[RuleVersion], limits: MaterializeLimits
) -> None:
    book = RuleBook(tuple(sorted(rules, key=lambda one: one.id)))
    deliveries = random_deliveries(seed, count=3, rows=100)
    with small_row_groups():
        at_ingest = ingested(files, deliveries, book)
        bytes_at_ingest = {one.path: files.read(one.path) for one in at_ingest.parts}
        stored = ingested(files, deliveries, NO_RULES)
        outcomes = [materialize_work(MaterializeWork(one, book), files.address, limits) for one in stored.segments]
    assert [one.error for one in outcomes] == [""] * len(outcomes)
    assert [one.made.rule_set for one in outcomes] == [one.rule_set for one in at_ingest.segments]
    assert at_ingest.parts or rules <= {*RULES[3:]}
    assert tuple(part for one in outcomes for part in one.made.segments) == at_ingest.parts
    assert {one.path: files.read(one.path) for one in at_ingest.parts} == bytes_at_ingest
    found = [(id_, replace(count, seconds=0.0)) for one in outcomes for id_, count in one.made.counts]
    assert found == [(id_, replace(count, seconds=0.0)) for id_, count in at_ingest.rule_counts]


def test_a_segment_of_an_older_release_lacks_columns_that_are_derived(files: Files) -> None:
    result = files.ingest(files.put("logs_old", request(random_lines(random.Random(3), 500))))
    (new,) = result.segments
    table = pq.read_table(io.BytesIO(files.read(new.path))).drop_columns([field.name for field in DERIVED])
    old = stored_again(files, new, parquet(table))
    made = materialize_work(MaterializeWork(old, BOOK), files.address, MEMORY).made
    assert made.rule_set == (3, 5)
    assert made.segments == result.parts


def parquet(table: pa.Table) -> bytes:
    sink = io.BytesIO()
    pq.write_table(table, sink, write_page_checksum=True)
    return sink.getvalue()


def stored_again(files: Files, segment: Segment, data: bytes) -> Segment:
    files.store.put(segment.path, data)
    derived = {field.name for field in DERIVED}
    columns = tuple(one for one in segment.columns if one.name not in derived)
    return replace(segment, bytes=len(data), columns=columns, rule_set=())


def test_all_versions_that_want_a_segment_are_evaluated_at_once_and_others_not(files: Files) -> None:
    (segment,) = files.ingest(files.put("logs_1", request(random_lines(random.Random(4))))).segments
    covered = replace(segment, rule_set=(BYTES.id,))
    with pytest.raises(ValueError, match="versions that do not cover"):
        MaterializeWork(covered, BOOK)
    with pytest.raises(ValueError, match="one at least"):
        MaterializeWork(covered, NO_RULES)
    old, never = replace(BY_SERVICE, since_ns=segment.time.end_ns), replace(BY_SERVICE, since_ns=None)
    wants = replace(BY_SERVICE, since_ns=segment.time.end_ns - 1)
    assert RuleBook((old,)).wanting(segment) == RuleBook((never,)).wanting(segment) == NO_RULES
    assert RuleBook((wants, replace(BYTES, since_ns=0))).wanting(covered) == RuleBook((wants,))


def test_a_version_over_its_limit_does_not_cover_the_segment(files: Files) -> None:
    tight = replace(BY_SERVICE, rule=replace(BY_SERVICE.rule, max_series=1))
    lines = request([("cart", 1, "a"), ("shop", 2, "paid 3")])
    (segment,) = files.ingest(files.put("logs_1", lines), book=NO_RULES).segments
    made = materialize_work(MaterializeWork(segment, RuleBook((tight, BYTES))), files.address, MEMORY).made
    assert (made.rule_set, [id_ for id_, _ in made.stops]) == ((BYTES.id,), [BY_SERVICE.id])
    assert {one.collector for one in made.segments} == {BYTES.collector}


def test_a_damaged_segment_is_reported(files: Files) -> None:
    (segment,) = files.ingest(files.put("logs_1", request(random_lines(random.Random(5)))), book=NO_RULES).segments
    data = bytearray(files.read(segment.path))
    data[len(data) // 3] ^= 0xFF
    files.store.put(segment.path, bytes(data))
    outcome = materialize_work(MaterializeWork(segment, BOOK), files.address, MEMORY)
    assert (outcome.is_damaged, outcome.made.segments) == (True, ())
    assert str(segment.id) in outcome.error
    gone = replace(segment, id=ORGANIZATION)
    missing = materialize_work(MaterializeWork(gone, BOOK), files.address, MEMORY)
    assert (missing.is_damaged, str(gone.id) in missing.error) == (True, True)
