"""What rows remote-write requests must give, worked out with protobuf and plain Python, and what rows a reader gave.

The messages are described here anew, with protobuf's own descriptors; nothing is shared with the code under test but
the names of columns. Doubles are compared by their bits.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from functools import cache
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

from lakerunner.model.signal import METRICS
from lakerunner.model.source import SourceObject
from lakerunner.model.typed_json import encode_value
from lakerunner.pipeline.read.names import texts_of
from lakerunner.pipeline.read.rows import Raw, Rows
from lakerunner.pipeline.read.walk import INT, STRING
from lakerunner.pipeline.steps.take import take

MODIFIED_NS = 1_700_000_000_123_456_789
Row = dict[str, Any]

_HISTOGRAM = """
    count_int:uint64=1/count count_float:double=2/count sum:double=3 schema:sint32=4 zero_threshold:double=5
    zero_count_int:uint64=6/zero zero_count_float:double=7/zero
    negative_spans:[BucketSpan]=8 negative_deltas:[sint64]=9 negative_counts:[double]=10
    positive_spans:[BucketSpan]=11 positive_deltas:[sint64]=12 positive_counts:[double]=13
    reset_hint:int32=14 timestamp:int64=15 custom_values:[double]=16
"""
_MESSAGES = {
    "prw1": {
        "Label": "name:string=1 value:string=2",
        "Sample": "value:double=1 timestamp:int64=2",
        "Exemplar": "labels:[Label]=1 value:double=2 timestamp:int64=3",
        "BucketSpan": "offset:sint32=1 length:uint32=2",
        "Histogram": _HISTOGRAM,
        "TimeSeries": "labels:[Label]=1 samples:[Sample]=2 exemplars:[Exemplar]=3 histograms:[Histogram]=4",
        "MetricMetadata": "type:int32=1 metric_family_name:string=2 help:string=4 unit:string=5",
        "Request": "timeseries:[TimeSeries]=1 metadata:[MetricMetadata]=3",
    },
    "read": {
        "Matcher": "type:int32=1 name:string=2 value:string=3",
        "Hints": "step_ms:int64=1 func:string=2 start_ms:int64=3 end_ms:int64=4",
        "Query": "start_timestamp_ms:int64=1 end_timestamp_ms:int64=2 matchers:[Matcher]=3 hints:Hints=4",
        "Request": "queries:[Query]=1 accepted_response_types:[int32]=2",
        "Label": "name:string=1 value:string=2",
        "Sample": "value:double=1 timestamp:int64=2",
        "BucketSpan": "offset:sint32=1 length:uint32=2",
        "Histogram": _HISTOGRAM,
        "TimeSeries": "labels:[Label]=1 samples:[Sample]=2 histograms:[Histogram]=4",
        "QueryResult": "timeseries:[TimeSeries]=1",
        "Response": "results:[QueryResult]=1",
    },
    "prw2": {
        "Sample": "value:double=1 timestamp:int64=2 start_timestamp:int64=3",
        "Exemplar": "labels_refs:[uint32]=1 value:double=2 timestamp:int64=3",
        "BucketSpan": "offset:sint32=1 length:uint32=2",
        "Histogram": _HISTOGRAM + " start_timestamp:int64=17",
        "Metadata": "type:int32=1 help_ref:uint32=3 unit_ref:uint32=4",
        "TimeSeries": """labels_refs:[uint32]=1 samples:[Sample]=2 histograms:[Histogram]=3 exemplars:[Exemplar]=4
            metadata:Metadata=5 created_timestamp:int64=6""",
        "Request": "symbols:[string]=4 timeseries:[TimeSeries]=5",
    },
}
_TYPES = ("unknown", "counter", "gauge", "histogram", "gaugehistogram", "summary", "info", "stateset")
_KEPT = ("metric_name", "metric_type")
_HINTS = {0: None, 1: "yes", 2: "no", 3: "gauge"}


@cache
def message_type(form: str, name: str = "Request", packed: bool = True) -> Any:
    """The class of this message; with `packed` False repeated numbers are written one by one."""
    file = descriptor_pb2.FileDescriptorProto(name=f"{form}.proto", package=form, syntax="proto3")
    for message_name, fields in _MESSAGES[form].items():
        message = file.message_type.add(name=message_name)
        for text in fields.split():
            _add_field(message, text, form, packed)
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{form}.{name}"))


def _add_field(message: Any, text: str, form: str, packed: bool) -> None:
    name, _, rest = text.partition(":")
    kind, _, number = rest.partition("=")
    number, _, one_of = number.partition("/")
    field = message.field.add(name=name, number=int(number), label=3 if kind.startswith("[") else 1)
    scalar = getattr(field, f"TYPE_{kind.strip('[]').upper()}", None)
    if scalar is None:
        field.type, field.type_name = field.TYPE_MESSAGE, f".{form}.{kind.strip('[]')}"
    else:
        field.type = scalar
        if field.label == 3 and scalar != field.TYPE_STRING:
            field.options.packed = packed
    if one_of:
        names = [one.name for one in message.oneof_decl]
        if one_of not in names:
            message.oneof_decl.add(name=one_of)
            names.append(one_of)
        field.oneof_index = names.index(one_of)


def framed(*messages: bytes) -> bytes:
    """Each message with its length before it."""
    return b"".join(_varint(len(message)) + message for message in messages)


def _varint(number: int) -> bytes:
    out = b""
    while number > 0x7F:
        out += bytes([number & 0x7F | 0x80])
        number >>= 7
    return out + bytes([number])


def raw_of(data: bytes, form: str, key: str = "metrics", modified_ns: int = MODIFIED_NS) -> Raw:
    return Raw(SourceObject("bucket", f"{key}.{form}", "etag", len(data), modified_ns), memoryview(data), form)


# ---- what must be there


def expected(form: str, messages: Sequence[bytes], modified_ns: int = MODIFIED_NS) -> list[Row]:
    rows: list[Row] = []
    for data in messages:
        request = message_type(form).FromString(data)
        symbols = list(request.symbols) if form == "prw2" else []
        # Metadata and series stand in the order of the wire, and that is not the order of fields: upb tells no more.
        for series in request.timeseries:
            rows += _rows_of_series(form, series, symbols, modified_ns)
        if form == "prw1":
            rows += [_entry(one, modified_ns) for one in request.metadata]
    return rows


def _entry(metadata: Any, modified_ns: int) -> Row:
    known = 0 <= metadata.type < len(_TYPES)
    return _without_empty(
        {
            "metric_name": metadata.metric_family_name,
            "metric_type": "metadata",
            "unit": metadata.unit,
            "description": metadata.help,
            "attributes": [("type", _TYPES[metadata.type] if known else metadata.type)],
            "timestamp": modified_ns,
        }
    )


def _rows_of_series(form: str, series: Any, symbols: list[str], modified_ns: int) -> Iterator[Row]:
    labels = _labels(form, series, symbols)
    name = next((place for place, (key, _) in enumerate(labels) if key == "__name__"), None)
    common = {
        "metric_name": "" if name is None else labels[name][1],
        "attributes": [label for place, label in enumerate(labels) if place != name],
        "service_name": next((value for key, value in labels if key == "job"), ""),
    }
    kind = 0
    if form == "prw2":
        metadata = series.metadata
        kind = metadata.type
        common["unit"] = symbols[metadata.unit_ref] if metadata.unit_ref else ""
        common["description"] = symbols[metadata.help_ref] if metadata.help_ref else ""
        if kind or common["unit"]:
            common["metadata"] = [("prometheus.type", _TYPES[kind] if 0 <= kind < len(_TYPES) else "unknown")]
    common["metric_type"] = {1: "sum"}.get(kind, _TYPES[kind] if 0 <= kind < len(_TYPES) else f"type_{kind}")
    points = []
    for sample in series.samples:
        counter = {"temporality": "cumulative", "monotonic": True} if kind == 1 else {}
        points.append({"value": _bits(sample.value), **_times(form, sample, series), **counter})
    points += [{**_histogram(one), **_times(form, one, series)} for one in series.histograms]
    exemplars = [_exemplar(form, one, symbols) for one in series.exemplars]
    if not points:
        time = (exemplars[-1]["timestamp"] or 0) if exemplars else 0
        points = [{"timestamp": time or modified_ns}]
        if form == "prw2" and series.created_timestamp:
            points[0]["start"] = series.created_timestamp * 1_000_000
    if exemplars:
        points[-1]["exemplars"] = exemplars
    for point in points:
        yield _without_empty({**common, **point})


def _without_empty(row: Row) -> Row:
    return {name: value for name, value in row.items() if value != "" or name in _KEPT}


def _times(form: str, point: Any, series: Any) -> Row:
    start = (point.start_timestamp or series.created_timestamp) if form == "prw2" else 0
    return {"timestamp": point.timestamp * 1_000_000, **({"start": start * 1_000_000} if start else {})}


def _labels(form: str, message: Any, symbols: list[str]) -> list[tuple[str, str]]:
    if form == "prw1":
        return [(label.name, label.value) for label in message.labels]
    texts = [symbols[reference] for reference in message.labels_refs]
    return list(zip(texts[::2], texts[1::2], strict=True))


def _exemplar(form: str, exemplar: Any, symbols: list[str]) -> Row:
    return {
        "timestamp": exemplar.timestamp * 1_000_000 or None,
        "double_value": _bits(exemplar.value),
        "int_value": None,
        "trace_id": None,
        "span_id": None,
        "attributes": [(key, encode_value(value)) for key, value in _labels(form, exemplar, symbols)],
    }


def _histogram(one: Any) -> Row:
    row: Row = {"sum": _bits(one.sum), "scale": one.schema, "zero_threshold": _bits(one.zero_threshold)}
    if one.WhichOneof("count") == "count_float":
        row["float_count"] = _bits(one.count_float)
    else:
        row["count"] = one.count_int
    if one.WhichOneof("zero") == "zero_count_float":
        row["float_zero_count"] = _bits(one.zero_count_float)
    else:
        row["zero_count"] = one.zero_count_int
    hint = _HINTS.get(one.reset_hint, f"hint_{one.reset_hint}")
    if hint:
        row["reset_hint"] = hint
    if one.reset_hint != 3:
        row["temporality"] = "cumulative"
    if one.custom_values:
        row["bounds"] = [_bits(bound) for bound in one.custom_values]
    row["metric_type"] = "histogram" if one.schema == -53 else "exponential_histogram"
    return row | (_custom(one) if one.schema == -53 else _sides(one))


def _custom(one: Any) -> Row:
    first, counts, is_float = _dense(one.positive_spans, one.positive_deltas, one.positive_counts)
    if not counts and not one.custom_values:
        return {}
    wide: list[Any] = [0] * (len(one.custom_values) + 1)
    wide[first : first + len(counts)] = counts
    assert len(wide) == len(one.custom_values) + 1
    return {"float_bucket_counts" if is_float else "bucket_counts": wide}


def _sides(one: Any) -> Row:
    row = {}
    for side in ("positive", "negative"):
        parts = (getattr(one, f"{side}_{name}") for name in ("spans", "deltas", "counts"))
        first, counts, is_float = _dense(*parts)
        if counts:
            row[side] = {
                "offset": first - 1,
                "counts": None if is_float else counts,
                "float_counts": counts if is_float else None,
            }
    return row


def _dense(spans: Any, deltas: Any, floats: Any) -> tuple[int, list[Any], bool]:
    """(first bucket, counts, whether they are bits of doubles)."""
    found: dict[int, int] = {}
    index = taken = count = 0
    for span in spans:
        index += span.offset
        for _ in range(span.length):
            if floats:
                found[index] = _bits(floats[taken])
            else:
                count += deltas[taken]
                found[index] = count
            index += 1
            taken += 1
    if not found:
        return 0, [], False
    first, last = min(found), max(found)
    return first, [found.get(place, 0) for place in range(first, last + 1)], bool(floats)


def _bits(number: float) -> int:
    return int.from_bytes(struct.pack("<d", number), "little")


# ---- what is there

_EMPTY = {"resource_dropped_attributes": 0, "scope_dropped_attributes": 0, "flags": 0, "service_name": "", "unit": ""}
_EMPTY |= dict.fromkeys(("description", "scope_name", "scope_version", "resource_schema_url"), "")
_EMPTY |= {"scope_schema_url": ""}


def actual(rows: Rows | None) -> list[Row]:
    """The rows, without what is null, zero or empty in them."""
    if rows is None:
        return []
    order = np.arange(rows.count, dtype=np.int32)
    found: list[Row] = [{} for _ in range(rows.count)]
    times = {"time_unix_nano": pa.int64(), "start_time_unix_nano": pa.int64()}
    for name, column in rows.columns.items():
        kind = times[name] if name in times else METRICS.schema.field(name).type
        for place, value in enumerate(_as_integers(take(column, rows.data, order, kind), kind)):
            if value is not None and value != _EMPTY.get(name):
                found[place][name] = value
    for name in ("attributes", "metadata"):
        if name in rows.attached:
            for place, pairs in enumerate(_pairs(rows, name)):
                if pairs or name == "attributes":
                    found[place][name] = pairs
    for name in ("resource_attributes", "scope_attributes"):
        assert all(not pairs for pairs in _pairs(rows, name))
    for place, row in enumerate(found):
        row["timestamp"] = row.pop("time_unix_nano") or int(rows.fallback_time[place])
        start = row.pop("start_time_unix_nano")
        if start:
            row["start"] = start
    return found


def _as_integers(array: pa.Array, kind: pa.DataType) -> list[Any]:
    """Doubles as their bits, times as integers."""
    if pa.types.is_dictionary(array.type):
        array = array.dictionary_decode()
    if pa.types.is_float64(kind) or pa.types.is_timestamp(kind):
        body = np.frombuffer(array.buffers()[1], np.uint64 if pa.types.is_float64(kind) else np.int64)
        return [int(v) if ok else None for v, ok in zip(body, array.is_valid().to_pylist(), strict=False)]
    if pa.types.is_struct(kind):
        fields = {field.name: _as_integers(array.field(place), field.type) for place, field in enumerate(kind)}
        values = [dict(zip(fields, one, strict=True)) for one in zip(*fields.values(), strict=True)]
        return [value if ok else None for value, ok in zip(values, array.is_valid().to_pylist(), strict=True)]
    if pa.types.is_list(kind):
        items, offsets = _as_integers(array.values, kind.value_type), array.offsets.to_pylist()
        lists = [items[start:stop] for start, stop in pairwise(offsets)]
        return [value if ok else None for value, ok in zip(lists, array.is_valid().to_pylist(), strict=True)]
    found: list[Any] = array.to_pylist()
    return found


def _pairs(rows: Rows, name: str) -> list[list[tuple[str, Any]]]:
    attached = rows.attached[name]
    keys = [text.decode() for text in texts_of(attached.keys, rows.data)]
    found = []
    for owner in attached.owners_of(np.arange(rows.count)).tolist():
        pairs = []
        for value in attached.values[attached.first[owner] : attached.first[owner + 1]]:
            at, size = int(value["at"]), int(value["size"])
            data = rows.data[at : at + size].tobytes()
            assert value["kind"] in (STRING, INT)
            pairs.append((keys[value["key"]], data.decode() if value["kind"] == STRING else _int(data)))
        found.append(pairs)
    return found


def _int(data: bytes) -> int:
    number = sum((byte & 0x7F) << 7 * place for place, byte in enumerate(data))
    return number - (1 << 64) if number >> 63 else number
