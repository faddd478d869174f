"""Any OTLP request that hypothesis can build comes back equal from a query: through the pipeline into a store, and out
of it through LakeQL as JSON, every column of every row.
"""

from __future__ import annotations

import math
from hashlib import sha256
from operator import add
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given

from lakerunner.lakeql.tables import LOGS_TABLE, METRICS_TABLE, SPANS_TABLE, TABLES, Table
from lakerunner.model.condition import Condition
from lakerunner.model.segment import VALUES, Segment, SegmentPick
from lakerunner.model.time import TimeRange
from lakerunner.objects.local import LocalStore
from lakerunner.pipeline.make_segments import make_segments
from lakerunner.plan.scan import fingerprint_groups, may_hold
from lakerunner.query.contract.failures import Limits
from lakerunner.query.row_text import json_rows
from lakerunner.query.sandbox.pool import Sandboxes
from lakerunner.query.segment_cache.cache import SegmentCache
from lakerunner.query.sql import Question
from lakerunner.query.worker import QueryWorker
from lakerunner.query.workers import OneWorker
from pipeline import (
    metrics_oracle,
    otlp_oracle,
    test_metrics_random,
    test_segments_random,
    test_traces_random,
    traces_oracle,
)
from pipeline.lakeql_oracle import ATTRIBUTE_MAPS, answered, read_alone, shown
from pipeline.otlp_oracle import COLLECTOR, MODIFIED_NS, ORGANIZATION, Row, raw_of
from pipeline.otlp_random import add_pairs, thorough
from suites.queries import sql_queries

EXPECTED = {"logs": otlp_oracle.expected, "metrics": metrics_oracle.expected, "traces": traces_oracle.expected}
TYPES = {
    "logs": otlp_oracle.request_type(),
    "metrics": metrics_oracle.request_type(),
    "traces": traces_oracle.request_type(),
}


class Lake:
    """A store on disk, an index of the last request's segments that is a tuple, and who asks them."""

    def __init__(self, directory: Path) -> None:
        (directory / "store").mkdir()
        self.store = LocalStore(directory / "store")
        self.made: tuple[Segment, ...] = ()
        cache = SegmentCache(self.store, directory / "cache", 1 << 30)
        sandboxes = Sandboxes(Limits("500MB", 60.0, 1_000_000), threads=1, spill_directory=directory / "spill")
        self.engine = sql_queries(self, OneWorker(QueryWorker(cache, sandboxes)), sandboxes)

    @property
    def segments(self) -> Any:  # queries of rows need `pick` alone
        return self

    def pick(
        self,
        organization: UUID,
        signal: str,
        time: TimeRange,
        *,
        conditions: tuple[Condition, ...] = (),
        frequency_ms: int = 0,
    ) -> SegmentPick:
        wanted = (organization, signal, frequency_ms)
        groups = fingerprint_groups(signal, conditions)
        there = [
            segment
            for segment in self.made
            if (segment.organization, segment.signal, segment.frequency_ms) == wanted and segment.time.overlaps(time)
        ]
        return SegmentPick(tuple(s for s in there if may_hold(s.fingerprints, groups)), len(there))

    def take(self, table: Table, request: Any) -> list[Row]:
        """The rows that must be there, once this request is all that is there."""
        data = request.SerializeToString()
        raw = raw_of(data, f"{sha256(data).hexdigest()}.binpb")  # another request's segments have other ids
        made = make_segments(table.spec, ORGANIZATION, COLLECTOR, [raw], self.store.put)
        assert [reason for _, reason in made.failed] == ([] if data else ["the file is empty"])
        self.made = made.segments
        return EXPECTED[table.spec.name]([request])

    def ask(self, sql: str) -> list[str]:
        answer = self.engine.sql(ORGANIZATION, Question(sql, MODIFIED_NS))
        return answered(row for batch in answer for row in json_rows(batch))

    def check(self, table: Table, request: Any) -> None:
        """All that the table shows of this request is all that the request says."""
        rows = self.take(table, request)
        assert self.ask(f"SELECT * FROM {table.spec.table}") == shown(table, rows)

    def check_alone(self, table: Table, request: Any) -> None:
        """So does each attribute that is read by its key. A NUL cannot stand in a question."""
        rows = self.take(table, request)
        found = {(name, key) for name, stored in ATTRIBUTE_MAPS.items() for row in rows for key in row[stored]}
        asked = [("attributes", "absent"), *sorted(pair for pair in found if "\0" not in pair[1])]
        columns = [f"{name}[{quoted(key)}] AS c{number}" for number, (name, key) in enumerate(asked)]
        assert self.ask(f"SELECT {', '.join(columns)} FROM {table.spec.table}") == read_alone(asked, rows)

    def check_pruned(self, table: Table, request: Any) -> None:
        """Rows are found by what the index knows of their segment, as many as are counted when all is read."""
        rows = self.take(table, request)
        maps = {(name, key) for name, stored in ATTRIBUTE_MAPS.items() for row in rows for key in row[stored]}
        values = {(name, row[name]) for name in VALUES[table.spec.name] for row in rows}
        asked_keys = sorted(pair for pair in maps if "\0" not in pair[1])[:5]
        asked_values = sorted(pair for pair in values if "\0" not in pair[1])[:5]
        conditions = [f"{name}[{quoted(key)}] IS NOT NULL" for name, key in [("attributes", "absent"), *asked_keys]]
        conditions += [f"{name} = {quoted(value)}" for name, value in [("service_name", "absent"), *asked_values]]
        found = [f"(SELECT count(*) FROM {table.spec.table} WHERE {condition})" for condition in conditions]
        counted = [f"count_if({condition})" for condition in conditions]
        names = [f" AS c{number}" for number in range(len(conditions))]
        asked, whole = (", ".join(map(add, ways, names)) for ways in (found, counted))
        assert self.ask(f"SELECT {asked}") == self.ask(f"SELECT {whole} FROM {table.spec.table}")


def quoted(key: str) -> str:
    return "'" + key.replace("'", "''") + "'"


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Lake:
    return Lake(tmp_path_factory.mktemp("lake"))


@pytest.mark.slow
@thorough(60)
@given(request=test_segments_random.requests())
def test_any_logs_come_back_from_a_query(lake: Lake, request: Any) -> None:
    lake.check(LOGS_TABLE, request)


@pytest.mark.slow
@thorough(60)
@given(request=test_metrics_random.requests())
def test_any_metrics_come_back_from_a_query(lake: Lake, request: Any) -> None:
    lake.check(METRICS_TABLE, request)


@pytest.mark.slow
@thorough(60)
@given(request=test_traces_random.requests())
def test_any_spans_come_back_from_a_query(lake: Lake, request: Any) -> None:
    lake.check(SPANS_TABLE, request)


@thorough(10)
@given(request=test_segments_random.requests())
def test_any_attributes_come_back_one_by_one(lake: Lake, request: Any) -> None:
    """Of logs: attributes of other signals are read by the same code."""
    lake.check_alone(LOGS_TABLE, request)


@pytest.mark.slow
@thorough(5)
@given(request=test_metrics_random.requests())
def test_any_metrics_are_found_by_what_the_index_knows(lake: Lake, request: Any) -> None:
    lake.check_pruned(METRICS_TABLE, request)


@pytest.mark.slow
@thorough(5)
@given(request=test_traces_random.requests())
def test_any_spans_are_found_by_what_the_index_knows(lake: Lake, request: Any) -> None:
    lake.check_pruned(SPANS_TABLE, request)


# Values whose text is easily mistaken, and keys that names of columns and literals may trip over.
TELLING: list[tuple[str, Any]] = [
    *(
        ("string_value", text)
        for text in (b"", b"null", b"7", b'{"bytesValue":"AA=="}', b"a\0b", b'"\\\n\x7f', b"\xff")
    ),
    *(("double_value", number) for number in (math.nan, math.inf, -math.inf, -0.0, 0.0, 1e16, 1e15, 5e-324, 0.1)),
    *(("int_value", number) for number in (0, -1, 2**63 - 1, -(2**63))),
    *(("bytes_value", content) for content in (b"", b"\0", b"text")),
    *(("bool_value", truth) for truth in (True, False)),
    ("", None),
    ("array_value", []),
    ("array_value", [("double_value", math.nan), ("bytes_value", b"\xff"), ("", None)]),
    ("kvlist_value", []),
    *(("kvlist_value", [(key, ("string_value", b"NaN"))]) for key in (b"bytesValue", b"doubleValue", b"kvlistValue")),
    ("kvlist_value", [(b"kvlistValue", ("kvlist_value", [(b"bytesValue", ("string_value", b"AA=="))]))]),
    ("kvlist_value", [(b"kvlistValue", ("kvlist_value", []))] * 2),
    ("kvlist_value", [("é\0".encode(), ("int_value", 1)), (b"", ("", None))]),
]
TELLING_KEYS = [
    b"",
    b"k",
    b"K",
    b"k_1",
    b"it's",
    b'"',
    b"{0}",
    b"a.b",
    b"[1]",
    b"\\",
    b"\0",
    b"\xff",
    "É".encode(),
    b"key_value.key",
]


def telling_request(table: Table) -> Any:
    """Every telling value as an attribute of all that has attributes: under one key for all of them, under a key of its
    own, and as the second of an equal key."""
    request = TYPES[table.spec.name]()
    for number, value in enumerate(TELLING):
        keys = (TELLING_KEYS[number % len(TELLING_KEYS)], b"own %d" % number)
        pairs = [(b"all", value), *((key, value) for key in keys), (b"all", TELLING[number - 1]), (keys[0], ("", None))]
        for owner in _owners(table, request):
            add_pairs(owner, pairs)
    return request


def _owners(table: Table, request: Any) -> list[Any]:
    """Where the attributes of one more item stand."""
    items = getattr(request, f"resource_{table.spec.table}").add()
    scope = getattr(items, f"scope_{table.spec.table}").add()
    shared = [items.resource.attributes, scope.scope.attributes]
    if table is LOGS_TABLE:
        return [*shared, scope.log_records.add().attributes]
    if table is SPANS_TABLE:
        span = scope.spans.add()
        return [*shared, span.attributes, span.events.add().attributes, span.links.add().attributes]
    metric = scope.metrics.add()
    point = metric.gauge.data_points.add()
    return [*shared, metric.metadata, point.attributes, point.exemplars.add().filtered_attributes]


@pytest.mark.parametrize("table", TABLES.values(), ids=TABLES)
def test_telling_values_come_back_from_a_query(lake: Lake, table: Table) -> None:
    lake.check(table, telling_request(table))


@pytest.mark.parametrize("table", TABLES.values(), ids=TABLES)
def test_telling_values_come_back_one_by_one(lake: Lake, table: Table) -> None:
    lake.check_alone(table, telling_request(table))


@pytest.mark.parametrize("table", TABLES.values(), ids=TABLES)
def test_telling_values_are_found_by_what_the_index_knows(lake: Lake, table: Table) -> None:
    lake.check_pruned(table, telling_request(table))
