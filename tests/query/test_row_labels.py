"""The labels of random log records and spans: what the view says of a batch is what its SQL says in DuckDB, matchers
choose the same rows by either, and no condition leaves out a row that they choose."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from lakerunner.lakeql import compile_sql
from lakerunner.model.condition import AllOf, AnyOf, Condition, Contains, Equals, Present
from lakerunner.model.labels.matcher import Matcher, SelectorTest
from lakerunner.model.labels.row_view import MAP_COLUMNS, ROW_VIEWS, RowLabels, RowView
from lakerunner.model.signal import Attribute
from lakerunner.model.source import SourceObject
from lakerunner.model.time import TimeRange
from lakerunner.pipeline.make_segments import Raw, make_segments
from lakerunner.plan.scan import fingerprint_groups, may_hold
from query.sample_lake import NOW, OWN, START, Lake, answer_of

HOUR = TimeRange(START, START + 3_600_000_000_000)
# Several are one label, some are fixed labels or aliases of them.
KEYS = [
    "a.b",
    "a_b",
    "a-b",
    "A.b",
    "pod",
    "level",
    "log.level",
    "severity",
    "id",
    "span_kind",
    "message",
    "é",
    "it's",
    "",
]
A_TEXT = st.sampled_from(["", "x", "a\nb", "error", "INFO", "Server", "it's", "200", "é\0"]) | st.text(max_size=4)
A_VALUE = st.none() | A_TEXT | st.integers(-5, 300) | st.booleans() | st.floats() | st.binary(max_size=3)
PAIRS = st.lists(st.tuples(st.sampled_from(KEYS), A_VALUE), max_size=5)
PATTERNS = ["", ".*", ".+", "a.b", "a.*", "x|error", "ERR.*", "(?i)info", "[^a]*", "Ser.er", "2[0-9]+", "\\Qx", "."]


@dataclass(frozen=True)
class Row:
    """One record or span, with a resource and a scope of its own. `number` is whatever the signal has of numbers."""

    attributes: Sequence[tuple[str, Any]]
    resource: Sequence[tuple[str, Any]]
    scope: Sequence[tuple[str, Any]]
    text: str
    number: int
    trace_id: bytes


ROWS = st.lists(
    st.builds(Row, PAIRS, PAIRS, PAIRS, A_TEXT, st.integers(-2, 20), st.sampled_from([b"", bytes(range(240, 256))])),
    min_size=1,
    max_size=12,
)


def put(owner: Any, pairs: Sequence[tuple[str, Any]]) -> None:
    kinds = {bool: "bool_value", int: "int_value", float: "double_value", str: "string_value", bytes: "bytes_value"}
    for key, value in pairs:
        added = owner.attributes.add(key=key)
        if value is not None:
            setattr(added.value, kinds[type(value)], value)


def logs_request(rows: Sequence[Row]) -> bytes:
    found = ExportLogsServiceRequest()
    for n, row in enumerate(rows):
        logs = found.resource_logs.add()
        put(logs.resource, [("service.name", row.text), *row.resource])
        scope = logs.scope_logs.add()
        put(scope.scope, row.scope)
        record = scope.log_records.add(time_unix_nano=START + n, severity_number=abs(row.number), event_name=row.text)
        record.body.string_value, record.trace_id = row.text, row.trace_id
        put(record, row.attributes)
    return found.SerializeToString()


def spans_request(rows: Sequence[Row]) -> bytes:
    found = ExportTraceServiceRequest()
    for n, row in enumerate(rows):
        spans = found.resource_spans.add()
        put(spans.resource, [("service.name", row.text), *row.resource])
        scope = spans.scope_spans.add()
        put(scope.scope, row.scope)
        span = scope.spans.add(name=row.text, kind=row.number, trace_id=row.trace_id, span_id=b"spanspan")
        span.start_time_unix_nano, span.end_time_unix_nano = START + n, START + n + row.number * 700_000
        span.status.code, span.status.message = row.number, row.text
        put(span, row.attributes)
    return found.SerializeToString()


REQUESTS = {"logs": logs_request, "traces": spans_request}


class ExampleLake:
    """A lake that holds the rows of one example at a time."""

    def __init__(self, directory: Path) -> None:
        self.lake = Lake(directory)
        self.engine = self.lake.engine()
        self.count = 0

    def hold(self, view: RowView, rows: Sequence[Row]) -> None:
        self.count += 1
        data = REQUESTS[view.spec.name](rows)
        raw = Raw(SourceObject("bucket", f"{self.count}.binpb", "etag", len(data), START), memoryview(data))
        put_file = self.lake.store.put
        made = make_segments(view.spec, OWN, f"c{self.count}", [raw], lambda path, file: put_file(path, bytes(file)))
        self.lake.all = list(made.segments)

    def batch(self, sql: str) -> pa.RecordBatch:
        (batch,) = answer_of(self.engine, sql).combine_chunks().to_batches() or [None]
        return batch


@pytest.fixture(scope="module")
def examples(tmp_path_factory: pytest.TempPathFactory) -> ExampleLake:
    return ExampleLake(tmp_path_factory.mktemp("labels"))


@pytest.mark.parametrize("view", ROW_VIEWS.values(), ids=list(ROW_VIEWS))
@settings(max_examples=10)
@given(rows=ROWS)
def test_labels_of_a_batch_are_those_of_the_sql(examples: ExampleLake, view: RowView, rows: list[Row]) -> None:
    examples.hold(view, rows)
    batch = examples.batch(f"SELECT * FROM {view.spec.table} ORDER BY timestamp")
    found = RowLabels(view, batch)
    own = view.labels(found.keys)
    named = own | {name: label for name in view.aliases if (label := view.find(name, found.keys))}
    columns = ", ".join(f"{label.sql} AS l{n}" for n, label in enumerate(named.values()))
    there = examples.batch(f"SELECT {columns} FROM {view.spec.table} ORDER BY timestamp").to_pydict()
    for n, (name, label) in enumerate(named.items()):
        assert found.values(label).to_pylist() == there[f"l{n}"], name
        assert RowLabels(view, batch.slice(1)).values(label).to_pylist() == there[f"l{n}"][1:], name
    numbers, sets = found.sets()
    expected = [
        tuple(
            sorted((name, there[f"l{n}"][row]) for n, name in enumerate(named) if name in own and there[f"l{n}"][row])
        )
        for row in range(len(rows))
    ]
    assert [sets[number] for number in numbers] == expected
    assert sets == list(dict.fromkeys(expected))
    few = {"a_b", "service_name", "no_such", "log_message"}
    numbers, sets = found.sets(few)
    assert [sets[number] for number in numbers] == [tuple(p for p in pairs if p[0] in few) for pairs in expected]


MATCHER_NAMES = [*KEYS, "service_name", "trace_id", "duration", "kind", "span_name", "log_message", "no_such"]
EQUALITIES = st.builds(
    Matcher,
    st.sampled_from(MATCHER_NAMES),
    st.sampled_from(["=", "!="]),
    A_TEXT | st.just(bytes(range(240, 256)).hex()),
)
REGEXES = st.builds(Matcher, st.sampled_from(MATCHER_NAMES), st.sampled_from(["=~", "!~"]), st.sampled_from(PATTERNS))


def value_in(batch: pa.RecordBatch, row: int, column: str | Attribute) -> str | None:
    if isinstance(column, str):
        value: str | None = batch.column(column)[row].as_py()
        return value
    return dict(batch.column(MAP_COLUMNS[column.scope])[row].as_py()).get(column.key)


def meets(batch: pa.RecordBatch, row: int, condition: Condition) -> bool:
    match condition:
        case Equals(column, values):
            return value_in(batch, row, column) in values
        case Contains(column, literal, ignore_case):
            text = value_in(batch, row, column) or ""
            return literal.lower() in text.lower() if ignore_case else literal in text
        case AnyOf(conditions):
            return any(meets(batch, row, one) for one in conditions)
        case AllOf(conditions):
            return all(meets(batch, row, one) for one in conditions)
        case Present(attributes):
            return any(value_in(batch, row, attribute) is not None for attribute in attributes)
    raise AssertionError(f"a view states no {condition}")


@pytest.mark.parametrize("view", ROW_VIEWS.values(), ids=list(ROW_VIEWS))
@settings(max_examples=15)
@given(rows=ROWS, matchers=st.lists(EQUALITIES | REGEXES, min_size=1, max_size=2).map(tuple))
def test_matchers_choose_the_same_rows_by_labels_and_by_sql(
    examples: ExampleLake, view: RowView, rows: list[Row], matchers: tuple[Matcher, ...]
) -> None:
    examples.hold(view, rows)
    batch = examples.batch(f"SELECT * FROM {view.spec.table} ORDER BY timestamp")
    found = RowLabels(view, batch)
    numbers, sets = found.sets()
    test = SelectorTest(view.resolve(matchers, found.keys))
    by_labels = [row for row, number in enumerate(numbers) if test(sets[number])]
    sql = f"SELECT timestamp FROM {view.spec.table} WHERE {view.where(HOUR, matchers, found.keys)}"
    times = answer_of(examples.engine, sql).column("timestamp").cast(pa.int64()).to_pylist()
    assert sorted(time - START for time in times) == by_labels

    conditions = view.conditions(matchers, found.keys)
    for row in by_labels:
        assert all(meets(batch, row, condition) for condition in conditions), conditions
    (segment,) = examples.lake.all
    assert not by_labels or may_hold(segment.fingerprints, fingerprint_groups(view.spec.name, conditions))
    (leaf,) = compile_sql(sql, OWN, NOW).leaves
    if not any("\0" in matcher.value for matcher in matchers):  # which is chr(0) in SQL, and no literal
        assert set(conditions) == set(leaf.scan.conditions)
