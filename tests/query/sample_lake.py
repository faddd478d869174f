"""A small lake to query: records as Python values, written as segments the way docs/formats says, and the same records
as a plain DuckDB table `logs`, against which answers are compared.
"""

from __future__ import annotations

import base64
import io
import json
import math
import random
import shutil
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from hashlib import sha256
from pathlib import Path
from typing import Any
from uuid import UUID
from weakref import WeakSet

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq

from lakerunner.lakeql.tables import LOGS_TABLE
from lakerunner.model.condition import Condition
from lakerunner.model.segment import Column, Segment, SegmentPick, TierPick, field_fingerprints, segment_id
from lakerunner.model.signal import ATTRIBUTES, LOGS, RESOURCE, SCOPE, Scope
from lakerunner.model.streams.stream_table import DETECTED_LEVEL, RESOURCE_ID
from lakerunner.model.tier import NOTHING_EXPIRED, Expiry, Interval
from lakerunner.model.time import TimeRange
from lakerunner.model.typed_json import KeyValues, Value, encode_value
from lakerunner.objects.local import LocalStore
from lakerunner.plan.scan import Scan, fingerprint_groups, may_hold
from lakerunner.query.contract.failures import Limits
from lakerunner.query.outgrown import Outgrown
from lakerunner.query.sandbox.pool import Sandboxes
from lakerunner.query.segment_cache.cache import SegmentCache
from lakerunner.query.sql import Question, SqlQueries
from lakerunner.query.worker import QueryWorker
from lakerunner.query.workers import OneWorker, Worker, Workers
from suites.queries import sql_queries

OWN = UUID("12340000-0000-4000-8000-000000000000")
OTHER = UUID("56780000-0000-4000-8000-000000000000")
START = 1_704_067_200_000_000_000  # 2024-01-01T00:00:00Z
HOUR = 3_600_000_000_000
NOW = START + 24 * HOUR + 123_456_789
# As older releases wrote them: readers must not need the columns that are derived from others.
STORED = tuple(name for name in LOGS.schema.names if name not in (RESOURCE_ID, DETECTED_LEVEL))

Pairs = tuple[tuple[str, Value], ...]
ARROW = {
    "string": pa.string(),
    "int64": pa.int64(),
    "double": pa.float64(),
    "bool": pa.bool_(),
    "bytes": pa.binary(),
    "json": pa.string(),
}


@dataclass(frozen=True)
class Record:
    timestamp: int
    service_name: str = "shop"
    message: str = "hello"
    severity: str = "INFO"
    severity_number: int = 9
    observed_timestamp: int | None = None
    delivery: int | None = None
    delivery_row: int | None = None
    body: str | None = None
    trace_id: bytes | None = None
    span_id: bytes | None = None
    fingerprint: int = 0
    flags: int = 0
    attributes: Pairs = ()
    resource: Pairs = (("service.name", "shop"),)
    scope: Pairs = ()

    def pairs(self, scope: Scope) -> Pairs:
        return {ATTRIBUTES: self.attributes, RESOURCE: self.resource, SCOPE: self.scope}[scope]


@dataclass(frozen=True)
class Shred:
    """Which keys of a scope get a column, and its type."""

    attributes: dict[str, str] = field(default_factory=dict)
    resource: dict[str, str] = field(default_factory=dict)
    scope: dict[str, str] = field(default_factory=dict)

    def of(self, scope: Scope) -> dict[str, str]:
        return {ATTRIBUTES: self.attributes, RESOURCE: self.resource, SCOPE: self.scope}[scope]


def type_of(value: Value) -> str | None:
    match value:
        case None:
            return None
        case bool():
            return "bool"
        case int():
            return "int64"
        case float():
            return "double"
        case str():
            return "string"
        case bytes():
            return "bytes"
    return "json"


def plain_text(value: Value) -> str | None:
    """What a query shows of an attribute; written apart from the SQL that does it."""
    match value:
        case None | str():
            return value
        case bool():
            return "true" if value else "false"
        case float() if math.isnan(value):
            return "NaN"
        case float() if math.isinf(value):
            return "Infinity" if value > 0 else "-Infinity"
        case int() | float():
            return repr(value)
        case bytes():
            return base64.b64encode(value).decode()
        case KeyValues(pairs) if len(pairs) == 1:
            return f"{{{json.dumps(pairs[0][0])}:{encode_value(pairs[0][1])}}}"
    return encode_value(value)


def plain_map(pairs: Pairs) -> dict[str, str | None]:
    """The first of several equal keys counts; sorted by key."""
    first: dict[str, str | None] = {}
    for key, value in pairs:
        first.setdefault(key, plain_text(value))
    return dict(sorted(first.items(), key=lambda pair: pair[0].encode()))


def write_segment(
    records: Sequence[Record], *, organization: UUID = OWN, collector: str = "default", shred: Shred | None = None
) -> tuple[Segment, bytes]:
    shred = shred or Shred()
    ordered = sorted(records, key=lambda r: (r.service_name, r.timestamp))
    columns: dict[str, pa.Array] = {name: _base(name, ordered) for name in STORED}
    shredded: list[Column] = []
    for scope in (ATTRIBUTES, RESOURCE, SCOPE):
        own, rest = _placed([record.pairs(scope) for record in ordered], shred.of(scope))
        columns[scope.map_column] = pa.array(rest, pa.map_(pa.string(), pa.string()))
        for key in sorted(own):
            kind = shred.of(scope)[key]
            columns[scope.prefix + key] = pa.array(own[key], ARROW[kind])
            shredded.append(Column(scope.prefix + key, kind))
    table = pa.Table.from_arrays(list(columns.values()), names=list(columns))
    buffer = io.BytesIO()
    pq.write_table(
        table,
        buffer,
        compression="zstd",
        row_group_size=1000,
        write_page_index=True,
        write_page_checksum=True,
        bloom_filter_options={"trace_id": {"ndv": 1000}},
    )
    data = buffer.getvalue()
    times = [record.timestamp for record in records]
    segment = Segment(
        id=segment_id(str(organization), collector, sha256(data).hexdigest(), len(data), times[0]),
        organization=organization,
        collector=collector,
        signal="logs",
        time=TimeRange(min(times), max(times) + 1),
        rows=len(records),
        bytes=len(data),
        sort_version=1,
        columns=(*(Column(name, "") for name in STORED), *shredded),
        fingerprints=_fingerprints(records),
    )
    return segment, data


def _fingerprints(records: Sequence[Record]) -> tuple[int, ...]:
    made = {*field_fingerprints("service_name", {record.service_name for record in records})}
    for scope in (ATTRIBUTES, RESOURCE, SCOPE):
        keys = {key for record in records for key, _ in record.pairs(scope)}
        made.update(number for key in keys for number in field_fingerprints(scope.prefix + key))
    return tuple(sorted(made))


def _placed(rows: list[Pairs], shred: dict[str, str]) -> tuple[dict[str, list[Any]], list[list[tuple[str, str]]]]:
    own: dict[str, list[Any]] = {key: [None] * len(rows) for key in shred}
    rest: list[list[tuple[str, str]]] = []
    for n, pairs in enumerate(rows):
        seen: set[str] = set()
        left = []
        for key, value in pairs:
            if key not in seen and shred.get(key) == type_of(value) and value is not None:
                own[key][n] = encode_value(value) if shred[key] == "json" else value
            else:
                left.append((key, encode_value(value)))
            seen.add(key)
        rest.append(left)
    return own, rest


def _base(name: str, records: Sequence[Record]) -> pa.Array:
    kind = LOGS.schema.field(name).type
    given = {"severity_text": "severity"}.get(name, name)
    blank: Any = 0 if pa.types.is_integer(kind) else ""
    if pa.types.is_map(kind):
        return pa.array([[]] * len(records), kind)
    return pa.array([getattr(record, given, blank) for record in records], kind)


def plain_table(records: Iterable[tuple[Record, str]], organization: UUID = OWN) -> pa.Table:
    """(record, collector) pairs as LakeQL's columns."""
    rows = [_plain_row(record, collector, organization) for record, collector in records]
    kinds = {
        "TIMESTAMP_NS": pa.timestamp("ns"),
        "VARCHAR": pa.string(),
        "INTEGER": pa.int32(),
        "UINTEGER": pa.uint32(),
        "BIGINT": pa.int64(),
        "MAP(VARCHAR, VARCHAR)": pa.map_(pa.string(), pa.string()),
    }
    return pa.table({c.name: pa.array([row[c.name] for row in rows], kinds[c.type]) for c in LOGS_TABLE.columns})


def _plain_row(record: Record, collector: str, organization: UUID) -> dict[str, Any]:
    row = {c.name: getattr(record, c.name, "" if c.type == "VARCHAR" else 0) for c in LOGS_TABLE.columns}
    return row | {
        "organization_id": str(organization),
        "collector": collector,
        "severity_text": record.severity,
        "trace_id": record.trace_id.hex() if record.trace_id is not None else None,
        "span_id": record.span_id.hex() if record.span_id is not None else None,
        "attributes": list(plain_map(record.attributes).items()),
        "resource_attrs": list(plain_map(record.resource).items()),
        "scope_attrs": list(plain_map(record.scope).items()),
    }


class Elsewhere(LocalStore):
    """A store whose objects are no files of this machine, as far as it tells: what is read of them is copied."""

    def local_path(self, key: str) -> Path | None:
        return None


class Lake:
    """Segments in a store on disk, and an index of them that is a list."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.store = Elsewhere(directory / "store")
        (directory / "store").mkdir(parents=True, exist_ok=True)
        self.all: list[Segment] = []
        self.records: list[tuple[Record, str]] = []
        self.picks: list[TimeRange] = []
        self.expired_ns: dict[str, int] = {}  # by signal
        self._pools: WeakSet[Sandboxes] = WeakSet()  # a pool that nobody holds any more closes itself

    def close(self) -> None:
        """End its sandboxes, which write below its directory."""
        for pool in self._pools:
            pool.close()

    @property
    def segments(self) -> Lake:
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
        self.picks.append(time)
        wanted = (organization, signal, frequency_ms)
        groups = fingerprint_groups(signal, conditions)
        there = [
            segment
            for segment in self.all
            if (segment.organization, segment.signal, segment.frequency_ms) == wanted and segment.time.overlaps(time)
        ]
        before_ns = self.expired_ns.get(signal)
        expiry = Expiry({0: before_ns}) if before_ns is not None and time.start_ns < before_ns else NOTHING_EXPIRED
        return SegmentPick(tuple(s for s in there if may_hold(s.fingerprints, groups)), len(there), expiry)

    def pick_points(
        self, organization: UUID, rows: Scan, points: Scan, collector: str
    ) -> tuple[SegmentPick, SegmentPick]:
        of_rows, of_points = (
            self.pick(organization, one.signal, one.time, conditions=one.conditions) for one in (rows, points)
        )
        own = tuple(one for one in of_points.segments if one.collector == collector)
        return of_rows, replace(of_points, segments=own, considered=len(own))

    def pick_tiers(
        self, organization: UUID, reach: Interval, tier: int, *, conditions: tuple[Condition, ...] = ()
    ) -> TierPick:
        """Nothing is rolled up."""
        time = TimeRange((reach[0] + 1) * 1_000_000, (reach[1] + 1) * 1_000_000)
        picked = self.pick(organization, "metrics", time, conditions=conditions)
        return TierPick({0: (reach,)}, picked.segments, picked.considered)

    def add(
        self,
        records: Sequence[Record],
        *,
        organization: UUID = OWN,
        collector: str = "default",
        shred: Shred | None = None,
    ) -> Segment:
        segment, data = write_segment(records, organization=organization, collector=collector, shred=shred)
        segment = replace(segment, id=segment_id(str(organization), len(self.all), collector))
        self.store.put(segment.path, data)
        self.all.append(segment)
        if organization == OWN:
            self.records += [(record, collector) for record in records]
        return segment

    def sandboxes(self, **limits: Any) -> Sandboxes:
        given: dict[str, Any] = {"memory": "500MB", "seconds": 30.0, "max_rows": 1_000_000} | limits
        most = Limits(given.pop("memory"), given.pop("seconds"), given.pop("max_rows"), (self.directory,))
        pool = Sandboxes(most, spill_directory=self.directory / "spill", **({"threads": 2} | given))
        self._pools.add(pool)
        return pool

    def worker(self, **limits: Any) -> QueryWorker:
        cache = SegmentCache(self.store, self.directory / "cache", limits.pop("cache_bytes", 1 << 30))
        return QueryWorker(cache, self.sandboxes(**limits))

    def engine(
        self,
        worker: Worker | None = None,
        workers: Workers | None = None,
        outgrown: Outgrown | None = None,
        **limits: Any,
    ) -> SqlQueries:
        alone = workers or OneWorker(worker or self.worker(**limits))
        return sql_queries(self, alone, self.sandboxes(**limits), outgrown)

    def plain(self) -> duckdb.DuckDBPyConnection:
        """DuckDB over a table `logs` of all own records."""
        connection = duckdb.connect(config={"python_enable_replacements": "false"})
        connection.execute("SET TimeZone = 'UTC'")
        connection.register("given", plain_table(self.records))
        connection.execute("CREATE TABLE logs AS SELECT * FROM given")
        return connection


def removed(directory: Path) -> None:
    """Remove it as someone else would, whatever is written there meanwhile."""
    while directory.exists():
        shutil.rmtree(directory, ignore_errors=True)


def answer_of(engine: SqlQueries, sql: str, now_ns: int = NOW, organization: UUID = OWN) -> pa.Table:
    answer = engine.sql(organization, Question(sql, now_ns))
    return pa.Table.from_batches(list(answer), schema=answer.schema)


def random_records(count: int, seed: int, start: int = START, span: int = HOUR) -> list[Record]:
    """Records with every kind of attribute value, some keys in two types, some of them rare."""
    chance = random.Random(seed)
    return [_random_record(chance, start + chance.randrange(span)) for _ in range(count)]


def _random_record(chance: random.Random, timestamp: int) -> Record:
    service = chance.choice(["cart", "shop", "pay", "été"])
    values: list[tuple[str, Value]] = [
        ("http.status_code", chance.choice([200, 404, 500, "200", "teapot"])),
        ("http.Method", chance.choice(["GET", "POST", 'we"ird\\\n', ""])),
        ("http.method", chance.choice(["lower", "case"])),
        ("ratio", chance.choice([0.5, 1e16, -0.0, math.nan, math.inf, -math.inf, 3])),
        ("ok", chance.choice([True, False, "true", None])),
        ("raw", chance.choice([b"", b"\x00\xff", "text"])),
        ("list", (1, 2.5, "x", None, (True,))),
        ("nested", KeyValues((("a", 1), ("b", KeyValues((("c", chance.random()),)))))),
        ("wrapped", KeyValues((("bytesValue", "zz"),))),
        ("it's", "quote"),
        ("big", chance.choice([2**63 - 1, -(2**63), 0])),
    ]
    picked = [pair for pair in values if chance.random() < 0.7]
    if chance.random() < 0.1:
        picked.append(("http.method", "second"))
    return Record(
        timestamp=timestamp,
        service_name=service,
        message=chance.choice(["user 12 logged in", "", 'a "quoted" \\ line\nwith two', "💥 boom"]),
        severity=chance.choice(["INFO", "ERROR", "WARN"]),
        severity_number=chance.choice([9, 13, 17]),
        observed_timestamp=chance.choice([None, timestamp + 1]),
        body=chance.choice([None, '{"a":1}']),
        trace_id=chance.choice([None, chance.randbytes(16)]),
        span_id=chance.choice([None, chance.randbytes(8)]),
        fingerprint=chance.randrange(-(2**63), 2**63),
        flags=chance.randrange(2**32),
        delivery=None if timestamp % 3 else -(timestamp % 7),
        delivery_row=None if timestamp % 3 else timestamp % 100,
        attributes=tuple(picked),
        resource=(("service.name", service), ("pod", chance.randrange(3))),
        scope=chance.choice([(), (("lib", "x"),)]),
    )


FULL_SHRED = Shred(
    attributes={
        "http.status_code": "int64",
        "http.Method": "string",
        "http.method": "string",
        "ratio": "double",
        "ok": "bool",
        "raw": "bytes",
        "list": "json",
        "nested": "json",
        "wrapped": "json",
        "it's": "string",
        "big": "int64",
    },
    resource={"service.name": "string", "pod": "int64"},
    scope={"lib": "string"},
)
