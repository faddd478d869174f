"""The columns and the table of streams say what model/streams says of the records as they were sent."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import orjson
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest

from lakerunner.model.segment import Segment
from lakerunner.model.signal import LOGS
from lakerunner.model.streams.body_lines import body_lines
from lakerunner.model.streams.log_record import (
    LOKI_STREAM,
    LOKI_STREAM_SERVICE,
    RecordFields,
    Resource,
    ScopeFields,
    line_of,
    metadata_of,
    scope_metadata_of,
    stream_of,
)
from lakerunner.model.streams.stored_attributes import attributes_of
from lakerunner.model.streams.stream_rules import DEFAULT_RULES
from lakerunner.model.streams.stream_table import STREAM_TABLE, read_stream_table
from lakerunner.model.typed_json import KeyValues, Value, encode_value
from lakerunner.objects.open import StoreAddress, shared_store
from lakerunner.pipeline.compact import CompactLimits, CompactWork, compact_work
from suites.ingested import ORGANIZATION, START, ingested
from suites.older_segments import older_files

LIMITS = CompactLimits(memory=64 << 20, max_bytes=1 << 30)
KEYS = (
    "level",
    "severity",
    "detected_level",
    "severity.text",
    "severity_number",
    "Level",
    "detected",
    "a",
    "log.level",
)
TEXTS = ("", "info", "ERR", "17", "x", "notice", "0")
LINES = (
    "",
    "all is well",
    "an error",
    "level=warn a=b",
    '{"level":"debug"}',
    "{'x'",
    "größe: FATAL!",
    '{"a":{"lvl":"inf"}}',
)
BODIES = (None, 7, 1.5, True, b"\xff error", ("info", 1), KeyValues((("z", "warn"), ("level", "ERR"), ("a", 2**40))))
ODD_BODIES = (KeyValues((("b", "<error>"), ("b", 1), ("a", 1.0))), ("\n level=info", float("nan")), KeyValues(()))
NESTED = (KeyValues((("level", "warn"), ("text", "trace"), ("number", 21))), ("info",), 3, 2.5, None, True, b"err", -1)


def set_value(target: Any, value: Value) -> None:
    match value:
        case None:
            target.SetInParent()
        case bool():
            target.bool_value = value
        case int():
            target.int_value = value
        case float():
            target.double_value = value
        case bytes():
            target.bytes_value = value
        case str():
            target.string_value = value
        case tuple():
            target.array_value.SetInParent()
            for one in value:
                set_value(target.array_value.values.add(), one)
        case KeyValues(pairs):
            target.kvlist_value.SetInParent()
            for key, one in pairs:
                set_value(target.kvlist_value.values.add(key=key).value, one)


Attributes = tuple[tuple[str, Value], ...]


class Sent:
    """Requests of random records, and what each record, by its event name, should have."""

    def __init__(self, chance: random.Random, files: int = 2) -> None:
        self.chance = chance
        self.levels: dict[str, str | None] = {}
        self.resources: dict[str, tuple[Any, ...]] = {}
        self.lines: dict[str, str] = {}
        self.requests = [self._request() for _ in range(files)]

    def _request(self) -> bytes:
        request = ExportLogsServiceRequest()
        known = [self._resource() for _ in range(3)]
        for _ in range(self.chance.randint(1, 6)):
            url, attributes = self.chance.choice(known)
            holder = request.resource_logs.add(schema_url=url)
            self._fill(holder.resource.attributes, self.chance.sample(attributes, len(attributes)))
            scope = holder.scope_logs.add()
            of_scope = self._attributes(0.1)
            self._fill(scope.scope.attributes, of_scope)
            for _ in range(self.chance.randint(1, 12)):
                self._record(scope.log_records.add(), url, attributes, of_scope)
        return bytes(request.SerializeToString())

    def _resource(self) -> tuple[str, Attributes]:
        url = self.chance.choice(["", "", "https://x", LOKI_STREAM, LOKI_STREAM_SERVICE])
        name = self.chance.choice(["cart", "shop"])
        return url, (("service.name", name), *self._attributes(0.2), ("n", self.chance.choice([1, 1.0, "1", None])))

    def _attributes(self, often: float) -> Attributes:
        keys = [key for key in KEYS if self.chance.random() < often]
        return tuple((key, self.chance.choice(TEXTS if self.chance.random() < 0.7 else NESTED)) for key in keys)

    def _fill(self, target: Any, attributes: Iterable[tuple[str, Value]]) -> None:
        for key, value in attributes:
            set_value(target.add(key=key).value, value)

    def _record(self, record: Any, url: str, of_resource: Attributes, of_scope: Attributes) -> None:
        chance, name = self.chance, str(len(self.levels))
        own = self._attributes(0.1)
        body: Value = chance.choice(LINES)
        if chance.random() < 0.2:
            body = chance.choice(BODIES + ODD_BODIES)
        self._fill(record.attributes, own)
        set_value(record.body, body)
        record.time_unix_nano, record.event_name = START + chance.randrange(5), name
        record.severity_number = chance.choice([0, 0, 9, 17, 30])
        record.severity_text = chance.choice(["", "", "Warning", "odd"])
        stream = stream_of(Resource(dict(of_resource), url), DEFAULT_RULES)
        line = body if isinstance(body, str) else line_of("", encode_value(body), is_loki=stream.is_loki)
        fields = RecordFields(
            dict(own), record.time_unix_nano, 0, record.severity_number, record.severity_text, 0, 0, "", "", name
        )
        scope = scope_metadata_of(ScopeFields(dict(of_scope), "", "", 0), DEFAULT_RULES)
        self.levels[name] = metadata_of(fields, stream, scope, line, DEFAULT_RULES).get("detected_level")
        self.resources[name] = url, *sorted((key, encode_value(value)) for key, value in of_resource)
        self.lines[name] = line


READ = ("event_name", "detected_level", "resource_id", "delivery", "delivery_row", "service_name")


def rows_of(data: bytes) -> list[dict[str, Any]]:
    table = pq.read_table(pa.BufferReader(data))
    times = table.column("timestamp").cast(pa.int64())
    return table.select(READ).append_column("timestamp", times).to_pylist()


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 2**32))
def test_stored_levels_and_resources_are_those_of_the_records(seed: int) -> None:
    sent = Sent(random.Random(seed))
    case = ingested(LOGS, *sent.requests)
    check(sent, rows_of(case.files[case.whole.path]))


def check(sent: Sent, rows: list[dict[str, Any]]) -> None:
    ids = defaultdict(set)
    for row in rows:
        assert row["detected_level"] == sent.levels[row["event_name"]], row
        ids[row["resource_id"]].add(sent.resources[row["event_name"]])
    assert all(len(resources) == 1 for resources in ids.values())
    assert len(ids) == len({sent.resources[row["event_name"]] for row in rows})


def table_of(data: bytes) -> list[dict[str, Any]]:
    return read_stream_table(data).to_pylist()


@settings(max_examples=15, deadline=None)
@given(st.integers(0, 2**32))
def test_the_table_counts_the_rows_of_each_resource_and_level(seed: int) -> None:
    sent = Sent(random.Random(seed))
    case = ingested(LOGS, *sent.requests, sent.requests[0])
    rows = rows_of(case.files[case.whole.path])
    assert table_of(case.side(STREAM_TABLE)) == expected_table(sent, rows)


def expected_table(sent: Sent, rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    found: dict[int, list[dict[str, Any]]] = defaultdict(list)
    for row in rows:
        found[row["resource_id"]].append(row)
    table = []
    for number, own in sorted(found.items()):
        url, *pairs = sent.resources[own[0]["event_name"]]
        levels = defaultdict(list)
        for row in own:
            size = len(sent.lines[row["event_name"]].encode("utf-8", "surrogateescape"))
            levels[row["detected_level"]].append((row["timestamp"], size))
        keys = [(row["delivery"], row["delivery_row"], row["timestamp"]) for row in own]
        table.append(
            {
                "resource_id": number,
                "resource": table_text(dict(pairs)),
                "resource_schema_url": url,
                "service_name": own[0]["service_name"],
                "levels": [
                    {
                        "level": level,
                        "rows": len(levels[level]),
                        "bytes": sum(size for _, size in levels[level]),
                        "first_ns": min(levels[level])[0],
                        "last_ns": max(levels[level])[0],
                    }
                    for level in sorted(levels, key=lambda one: (one is None, one))
                ],
                "deliveries": sorted({row["delivery"] for row in own}),
                "repeats": len(set(keys)) < len(keys),
            }
        )
    return table


def table_text(resource: Mapping[str, str]) -> str:
    """The attributes, given as typed JSON, as the table has them: texts but for values that would lose their type."""
    shown = {}
    for key, text in resource.items():
        is_typed = text == "null" or text[0] in "[{" or ("." in text and text[0] != '"')
        shown[key] = [text] if is_typed and "bytesValue" not in text else _plain(text)
    return orjson.dumps([shown, None], option=orjson.OPT_SORT_KEYS).decode()


def _plain(text: str) -> str:
    value = orjson.loads(text)
    return value["bytesValue"] if isinstance(value, dict) else value if isinstance(value, str) else text


@pytest.mark.parametrize("seed", range(6))
def test_merges_of_old_and_new_segments_store_the_same(seed: int, tmp_path: Path) -> None:
    sent = Sent(random.Random(seed), files=3)
    case = ingested(LOGS, *sent.requests)
    address = StoreAddress(tmp_path.as_uri())
    parts = tuple(replace(part, ingested=place) for place, part in enumerate(case.parts, 1))
    old, files = older_files(parts[: 1 + seed % 3], case.files)
    for path, data in files.items():
        shared_store(address).put(path, data)
    (merged,) = merge((*old, *parts[len(old) :]), address)
    check(sent, rows_of(bytes(shared_store(address).get(merged.path, max_bytes=1 << 20))))
    side = bytes(shared_store(address).get(merged.side_path(STREAM_TABLE), max_bytes=1 << 20))
    assert table_of(side) == table_of(case.side(STREAM_TABLE))


def merge(parts: tuple[Segment, ...], address: StoreAddress) -> tuple[Segment, ...]:
    outcome = compact_work(CompactWork(ORGANIZATION, "c", "logs", 0, 1, parts), address, LIMITS)
    assert outcome.error == ""
    return outcome.segments


def test_the_table_gives_the_attributes_that_a_scan_gives() -> None:
    request = ExportLogsServiceRequest()
    holder = request.resource_logs.add()
    values: dict[str, Value] = {"a": "x", "b": 7, "c": True, "d": b"\x00", "e": 1.5, "f": (1,), "g": KeyValues(())}
    for key, value in values.items():
        set_value(holder.resource.attributes.add(key=key).value, value)
    holder.scope_logs.add().log_records.add(time_unix_nano=START)
    (row,) = table_of(ingested(LOGS, request.SerializeToString()).side(STREAM_TABLE))
    assert attributes_of(row["resource"]) == values | {"b": "7", "c": "true", "d": "AA=="}


VALUES = st.recursive(
    st.one_of(
        st.none(),
        st.booleans(),
        st.integers(-(2**63), 2**63 - 1),
        st.floats(),
        st.text(max_size=5),
        st.binary(max_size=3),
    ),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3).map(tuple),
        st.lists(st.tuples(st.text(max_size=3), inner), max_size=3).map(lambda pairs: KeyValues(tuple(pairs))),
    ),
)


@settings(max_examples=50)
@given(st.lists(st.tuples(VALUES, st.booleans()), max_size=5))
def test_lines_of_many_bodies_are_those_of_each(bodies: list[tuple[Value, bool]]) -> None:
    texts, is_loki = [encode_value(body) for body, _ in bodies], [loki for _, loki in bodies]
    expected = [line_of("", text, is_loki=loki) for text, loki in zip(texts, is_loki, strict=True)]
    assert body_lines(pa.array(texts, pa.string()), is_loki) == expected
