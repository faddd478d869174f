"""What a segment of OTLP logs must hold, worked out with protobuf and plain Python, and what it does hold. What other
signals share with logs is here too; traces_oracle.py says what their segments must hold.

`expected` decodes requests with upb, with every string declared as bytes so that ill-formed text is seen too. `actual`
reads segments back with pyarrow. Both give rows as dicts: the fixed columns, and for each scope of attributes a dict
from key to the typed JSON of its values in their order.
"""

from __future__ import annotations

import base64
import io
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache
from typing import Any
from uuid import UUID

import pyarrow as pa
import pyarrow.parquet as pq
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.message import DecodeError
from opentelemetry.proto.collector.logs.v1 import logs_service_pb2

from lakerunner.model.segment import Segment
from lakerunner.model.signal import LOGS, SCOPES, SIGNALS, SignalSpec
from lakerunner.model.source import SourceObject
from lakerunner.model.streams.stream_table import STREAM_TABLE
from lakerunner.model.text_index import SIDE_FILE
from lakerunner.model.time import HOUR_NS
from lakerunner.model.typed_json import KeyValues, Value, decode_value, encode_value
from lakerunner.pipeline.make_segments import MakeResult, Raw, make_segments

ORGANIZATION = UUID(int=1)
COLLECTOR = "collector"
MODIFIED_NS = 1_700_000_000_123_456_789
LAST_TIME = 2**63 - 2
ENTITY_REFS = "lakerunner.entity_refs"
Row = dict[str, Any]
Pairs = list[tuple[str, Value]]


def raw_of(data: bytes, key: str = "logs.binpb", modified_ns: int = MODIFIED_NS) -> Raw:
    return Raw(SourceObject("bucket", key, "etag", len(data), modified_ns), memoryview(data))


def make(*raws: Raw, spec: SignalSpec = LOGS) -> tuple[MakeResult, dict[str, bytes]]:
    """The segments of these objects, and their files by path, without side files."""
    files: dict[str, bytes] = {}

    def put(path: str, data: memoryview) -> None:
        assert path not in files
        files[path] = bytes(data)

    made = make_segments(spec, ORGANIZATION, COLLECTOR, raws, put)
    return made, {path: data for path, data in files.items() if not path.endswith((SIDE_FILE, STREAM_TABLE))}


# ---- what must be there


def request_type() -> Any:
    return type_with_bytes(logs_service_pb2, "ExportLogsServiceRequest")


@cache
def type_with_bytes(service: Any, name: str) -> Any:
    """This message with strings as bytes, without what only profiles use."""
    pool = descriptor_pool.DescriptorPool()

    def add(file: Any) -> None:
        for dependency in file.dependencies:
            add(dependency)
        proto = descriptor_pb2.FileDescriptorProto.FromString(file.serialized_pb)
        pending = list(proto.message_type)
        while pending:
            message = pending.pop()
            pending += message.nested_type
            for field in list(message.field):
                if field.name.endswith("_strindex"):
                    message.field.remove(field)
                elif field.type == field.TYPE_STRING:
                    field.type = field.TYPE_BYTES
        pool.Add(proto)

    add(service.DESCRIPTOR)
    full_name = service.DESCRIPTOR.message_types_by_name[name].full_name
    return message_factory.GetMessageClass(pool.FindMessageTypeByName(full_name))


def decoded(data: bytes) -> Any:
    """The request, or None where protobuf itself refuses it."""
    try:
        return request_type().FromString(data)
    except DecodeError:
        return None


def expected(requests: Iterable[Any], modified_ns: int = MODIFIED_NS) -> list[Row]:
    """The rows of these requests in the order of a single hour's segment after the other."""
    rows = [row for request in requests for row in _rows(request, modified_ns)]
    return sorted(rows, key=lambda row: (row["timestamp"] // HOUR_NS, row["service_name"].encode(), row["timestamp"]))


def _rows(request: Any, modified_ns: int) -> Iterator[Row]:
    for resource_logs in request.resource_logs:
        for scope_logs in resource_logs.scope_logs:
            for record in scope_logs.log_records:
                own, columns = _record(record, modified_ns)
                yield {**common_columns(resource_logs, scope_logs), **columns, "attributes": by_key(own)}


def common_columns(resource_items: Any, scope_items: Any) -> Row:
    """What an item of any signal has from its scope and resource."""
    resource, scope = pairs_of(resource_items.resource.attributes), pairs_of(scope_items.scope.attributes)
    service = next((value for key, value in resource if key == "service.name"), "")
    columns = {
        "service_name": service if isinstance(service, str) else "",
        "resource_schema_url": text_of(resource_items, "schema_url", resource),
        "resource_dropped_attributes": resource_items.resource.dropped_attributes_count,
        "scope_name": text_of(scope_items.scope, "name", scope),
        "scope_version": text_of(scope_items.scope, "version", scope),
        "scope_schema_url": text_of(scope_items, "schema_url", scope),
        "scope_dropped_attributes": scope_items.scope.dropped_attributes_count,
    }
    resource += [(ENTITY_REFS, entity.SerializeToString()) for entity in resource_items.resource.entity_refs]
    return {**columns, "resource_attributes": by_key(resource), "scope_attributes": by_key(scope)}


def _record(record: Any, modified_ns: int) -> tuple[Pairs, Row]:
    own = pairs_of(record.attributes)
    texts = {name: text_of(record, name, own) for name in ("severity_text", "event_name")}
    message, body = _body(record, own)
    times = [time_of(record, name, own) for name in ("time_unix_nano", "observed_time_unix_nano")]
    return own, {
        **texts,
        "timestamp": times[0] or times[1] or modified_ns,
        "observed_timestamp": times[1],
        "severity_number": record.severity_number,
        "message": message,
        "body": body,
        "trace_id": record.trace_id or None,
        "span_id": record.span_id or None,
        "flags": record.flags,
        "dropped_attributes_count": record.dropped_attributes_count,
    }


def _body(record: Any, own: Pairs) -> tuple[str, str | None]:
    if not record.HasField("body"):
        return "", None
    if record.body.WhichOneof("value") == "string_value":
        original = record.body.string_value
        text = original.decode("utf-8", "replace")
        if text.encode() != original:
            own.append(("lakerunner.body", original))
        return text, None
    value = value_of(record.body)
    return plain_text(value), encode_value(value)


def plain_text(value: Value) -> str:
    if value is None:
        return ""
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    return encode_value(value)


def value_of(any_value: Any) -> Value:
    kind = any_value.WhichOneof("value")
    if kind is None:
        return None
    value = getattr(any_value, kind)
    if kind == "string_value":
        try:
            return bytes(value).decode() if isinstance(value, bytes) else str(value)
        except UnicodeDecodeError:
            return bytes(value)
    if kind == "array_value":
        return tuple(value_of(item) for item in value.values)
    if kind == "kvlist_value":
        return KeyValues(tuple(pairs_of(value.values)))
    result: Value = value
    return result


def pairs_of(pairs: Any) -> Pairs:
    found = [(pair.key.decode("utf-8", "replace"), value_of(pair.value)) for pair in pairs]
    for pair in pairs:
        key = pair.key.decode("utf-8", "replace")
        if key.encode() != pair.key:
            found.append((f"lakerunner.key.{key}", pair.key))
    return found


def time_of(message: Any, field: str, attributes: Pairs) -> int | None:
    number: int = getattr(message, field)
    if number > LAST_TIME:
        attributes.append((f"lakerunner.{field}", str(number)))
    return number if 0 < number <= LAST_TIME else None


def text_of(message: Any, field: str, attributes: Pairs, name: str = "") -> str:
    original = getattr(message, field)
    text: str = original.decode("utf-8", "replace")
    if text.encode() != original:
        attributes.append((f"lakerunner.{name or field}", original))
    return text


def by_key(pairs: Pairs) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for key, value in pairs:
        found.setdefault(key, []).append(encode_value(value))
    return found


# ---- what is there

_FROM_COLUMN: Mapping[str, Callable[[Any], Value]] = {"json": decode_value}


def actual(segments: Sequence[Segment], files: Mapping[str, bytes]) -> list[Row]:
    """The rows of these segments, one segment after the other."""
    return [row for segment in segments for row in rows_of(segment, files[segment.path])]


def rows_of(segment: Segment, file: bytes) -> list[Row]:
    table = pq.read_table(io.BytesIO(file))
    assert table.num_rows == segment.rows
    assert len(file) == segment.bytes
    assert table.column_names == [column.name for column in segment.columns]
    table = table.cast(pa.schema([field.with_type(_times_as_numbers(field.type)) for field in table.schema]))
    shredded = [column for column in segment.columns if column.type]
    left_out = dict.fromkeys(set(SIGNALS[segment.signal].schema.names) - set(table.column_names))
    return [_unshredded(row, shredded) | left_out for row in table.to_pylist(maps_as_pydicts=None)]


def _times_as_numbers(kind: pa.DataType) -> pa.DataType:
    """Python's own times have no nanoseconds."""
    if pa.types.is_timestamp(kind):
        return pa.int64()
    if pa.types.is_list(kind):
        return pa.list_(kind.value_field.with_type(_times_as_numbers(kind.value_type)))
    if pa.types.is_struct(kind):
        return pa.struct([field.with_type(_times_as_numbers(field.type)) for field in kind])
    return kind


def _unshredded(row: Row, shredded: Iterable[Any]) -> Row:
    for scope in SCOPES:
        found: dict[str, list[str]] = {}
        for column in shredded:
            if column.name.startswith(scope.prefix):
                value = row.pop(column.name)
                if value is not None:
                    convert = _FROM_COLUMN.get(column.type)
                    value = value if convert is None else convert(value)
                    found[column.name.removeprefix(scope.prefix)] = [encode_value(value)]
        for key, text in row[scope.map_column]:
            assert encode_value(decode_value(text)) == text
            found.setdefault(key, []).append(text)
        if ENTITY_REFS in found:
            found[ENTITY_REFS] = [_canonical_entity(text) for text in found[ENTITY_REFS]]
        row[scope.map_column] = found
    return row


def _canonical_entity(text: str) -> str:
    """An EntityRef is kept as the bytes it came in; protobuf writes the same one in its own order."""
    entity_type = type(request_type()().resource_logs.add().resource.entity_refs.add())
    return encode_value(entity_type.FromString(decode_value(text)).SerializeToString())


def assert_same(found: Sequence[Row], wanted: Sequence[Row]) -> None:
    """Equal in every column that the oracle knows."""
    assert len(found) == len(wanted)
    for place, (have, want) in enumerate(zip(found, wanted, strict=True)):
        different = {name: (have[name], want[name]) for name in want if have[name] != want[name]}
        assert different == {}, f"row {place}: (found, wanted) of {different}"
