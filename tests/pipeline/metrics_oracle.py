"""What a segment of OTLP metrics, and its table of series, must hold, worked out with protobuf and plain Python.

Doubles are compared by their bits: `exact` makes ("double", bits) of each.
"""

from __future__ import annotations

import io
import struct
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from itertools import groupby
from typing import Any

import pyarrow.parquet as pq
from google.protobuf.message import DecodeError
from opentelemetry.proto.collector.metrics.v1 import metrics_service_pb2

from lakerunner.model.prometheus import escaped_label_name, escaped_metric_name, metric_name
from lakerunner.model.segment import Segment
from lakerunner.model.signal import METRICS, PART_COLUMNS
from lakerunner.model.time import HOUR_NS
from lakerunner.model.typed_json import KeyValues, Value, decode_value
from lakerunner.pipeline.make_segments import MakeResult
from pipeline.otlp_oracle import (
    MODIFIED_NS,
    Row,
    by_key,
    common_columns,
    make,
    pairs_of,
    plain_text,
    raw_of,
    rows_of,
    text_of,
    time_of,
    type_with_bytes,
)

KINDS = ("gauge", "sum", "histogram", "exponential_histogram", "summary")
TEMPORALITIES = {0: None, 1: "delta", 2: "cumulative"}
MASK = 2**64 - 1


def request_type() -> Any:
    return type_with_bytes(metrics_service_pb2, "ExportMetricsServiceRequest")


def decoded(data: bytes) -> Any:
    """The request, or None where protobuf itself refuses it."""
    try:
        return request_type().FromString(data)
    except DecodeError:
        return None


def make_metrics(*contents: bytes) -> tuple[MakeResult, dict[str, bytes]]:
    raws = [raw_of(data, f"metrics{number:04}.binpb") for number, data in enumerate(contents)]
    return make(*raws, spec=METRICS)


def exact(value: Any) -> Any:
    if isinstance(value, float):
        return "double", struct.unpack("<Q", struct.pack("<d", value))[0]
    if isinstance(value, dict):
        return {name: exact(item) for name, item in value.items()}
    if isinstance(value, list):
        return [exact(item) for item in value]
    return value


# ---- what must be there


def expected(requests: Iterable[Any], modified_ns: int = MODIFIED_NS) -> list[Row]:
    """The rows of these requests in the order of a single hour's segment after the other."""
    rows = [row for request in requests for row in _rows(request, modified_ns)]
    rows.sort(key=lambda r: (r["timestamp"] // HOUR_NS, r["metric_name"].encode(), r["series"], r["timestamp"]))
    for _, group in groupby(rows, key=lambda row: (row["timestamp"] // HOUR_NS, row["series"])):
        _place_numbers(list(group))
    return [exact(row) for row in rows]


def _place_numbers(points: list[Row]) -> None:
    numbers = [point.pop("number") for point in points]
    whole = all(_is_whole(number) for number in numbers if number is not None)
    for point, number in zip(points, numbers, strict=True):
        as_int = number is not None and (whole or (isinstance(number, int) and int(float(number)) != number))
        point["int_value"] = int(number) if as_int else None
        point["value"] = None if number is None or as_int else float(number)
        point["is_int"] = None if number is None else isinstance(number, int)


def _is_whole(number: int | float) -> bool:
    if isinstance(number, int):
        return True
    minus_zero = struct.pack("<d", number) == struct.pack("<d", -0.0)
    return abs(number) <= 2**53 and number == int(number) and not minus_zero


def _rows(request: Any, modified_ns: int) -> Iterator[Row]:
    for resource_metrics in request.resource_metrics:
        for scope_metrics in resource_metrics.scope_metrics:
            common = common_columns(resource_metrics, scope_metrics)
            for metric in scope_metrics.metrics:
                kind = metric.WhichOneof("data")
                if kind is None:
                    continue
                data = getattr(metric, kind)
                metadata = pairs_of(metric.metadata)
                of_metric = {name: text_of(metric, name, metadata) for name in ("name", "description", "unit")}
                temporality = getattr(data, "aggregation_temporality", 0)
                about = {
                    "metric_name": of_metric["name"],
                    "description": of_metric["description"],
                    "unit": of_metric["unit"],
                    "metric_type": kind,
                    "temporality": TEMPORALITIES.get(temporality, str(temporality)),
                    "monotonic": data.is_monotonic if kind == "sum" else None,
                    "metadata": by_key(metadata) or None,
                }
                for point in data.data_points:
                    row = {**common, **about, **_point(point, kind, modified_ns)}
                    yield {**row, "series": series_of(row)}


def _point(point: Any, kind: str, modified_ns: int) -> Row:
    own = pairs_of(point.attributes)
    time, start = (time_of(point, name, own) for name in ("time_unix_nano", "start_time_unix_nano"))
    names = METRICS.schema.names
    row: Row = dict.fromkeys((*names[names.index("count") : names.index("metadata")], *PART_COLUMNS))
    row |= {
        "timestamp": time or modified_ns,
        "start_timestamp": start,
        "flags": point.flags,
        "attributes": by_key(own),
        "number": None,
        "exemplars": [_exemplar(one) for one in getattr(point, "exemplars", ())] or None,
    }
    if kind in ("gauge", "sum"):
        given = point.WhichOneof("value")
        return row | {"number": getattr(point, given) if given else None}
    row["count"] = point.count
    if kind == "summary":
        row["sum"] = point.sum
        row["quantiles"] = [one.quantile for one in point.quantile_values] or None
        row["quantile_values"] = [one.value for one in point.quantile_values] or None
        return row
    for name in ("sum", "min", "max"):
        row[name] = getattr(point, name) if point.HasField(name) else None
    if kind == "histogram":
        row["bounds"], row["bucket_counts"] = list(point.explicit_bounds) or None, list(point.bucket_counts) or None
        return row
    for name in ("scale", "zero_count", "zero_threshold"):
        row[name] = getattr(point, name)
    for name in ("positive", "negative"):
        if point.HasField(name):
            buckets = getattr(point, name)
            counts = list(buckets.bucket_counts) or None
            row[name] = {"offset": buckets.offset, "counts": counts, "float_counts": None}
    return row


def _exemplar(exemplar: Any) -> Row:
    own = pairs_of(exemplar.filtered_attributes)
    given = exemplar.WhichOneof("value")
    return {
        "timestamp": time_of(exemplar, "time_unix_nano", own),
        "double_value": exemplar.as_double if given == "as_double" else None,
        "int_value": exemplar.as_int if given == "as_int" else None,
        "trace_id": exemplar.trace_id or None,
        "span_id": exemplar.span_id or None,
        "attributes": by_key(own),
    }


# ---- the digest of a series, as docs/formats/segments.md states it


def folded(one: int, other: int) -> int:
    product = one * other
    return (product ^ product >> 64) & MASK


def digest(data: bytes, seed: int) -> int:
    value = folded(seed ^ 0x9E3779B97F4A7C15, len(data) ^ 0xE7037ED1A0B428DB)
    while len(data) > 8:
        value = folded(value ^ int.from_bytes(data[:8], "little"), 0xA0761D6478BD642F)
        data = data[8:]
    return folded(value ^ int.from_bytes(data, "little"), 0x8EBC6AF09C88C6E3) if data else value


@lru_cache(100_000)
def pair_digest(key: str, text: str, times: int) -> int:
    """Of a key, the typed JSON of its value, and how many of the same key stand before it."""
    value = decode_value(text)
    kind, content = _kind_and_digest(value, text)
    mark = folded(digest(key.encode(), 0x6B657973) ^ (kind | times << 3), 0xD6E8FEB86659FD93)
    return folded(mark ^ content, 0xD6E8FEB86659FD93)


def _kind_and_digest(value: Value, text: str) -> tuple[int, int]:
    def number(bits: int) -> int:
        return folded((bits & MASK) ^ 0x76616C75, 0xA24BAED4963EE407)

    match value:
        case None:
            return 0, number(0)
        case str():
            return 1, digest(value.encode(), 0x76616C75)
        case bool():
            return 2, number(value)
        case int():
            return 3, number(value)
        case float():
            return 4, number(struct.unpack("<Q", struct.pack("<d", value))[0])
        case tuple():
            return 5, digest(text.encode(), 0x76616C75)
        case KeyValues():
            return 6, digest(text.encode(), 0x76616C75)
        case bytes():
            return 7, digest(value, 0x76616C75)


def set_digest(attributes: Mapping[str, list[str]]) -> int:
    pairs = [(key, text, times) for key, texts in attributes.items() for times, text in enumerate(texts)]
    return sum(pair_digest(*pair) for pair in pairs) & MASK


def series_of(row: Row) -> int:
    def text(name: str) -> int:
        return 0 if row[name] is None else digest(row[name].encode(), 0x74657874)

    texts = ("metric_name", "metric_type", "unit", "temporality", "scope_name", "scope_version")
    parts = [*map(text, texts), {None: 0, False: 1, True: 2}[row["monotonic"]]]
    parts += [set_digest(row[name]) for name in ("attributes", "resource_attributes", "scope_attributes")]
    value = 0x73657269657331
    for part in parts:
        value = folded(value ^ part, 0x9FB21C651E98DF25)
    return value - 2**64 if value >> 63 else value


# ---- what is there


def actual(made: MakeResult, files: Mapping[str, bytes]) -> list[Row]:
    """The rows of these segments, one segment after the other, doubles as their bits."""
    rows = [row for segment in made.segments for row in rows_of(segment, files[segment.path])]
    for row in rows:
        if row["metadata"] is not None:
            row["metadata"] = _grouped(row["metadata"])
        for exemplar in row["exemplars"] or ():
            exemplar["attributes"] = _grouped(exemplar["attributes"])
    return [exact(row) for row in rows]


def _grouped(pairs: Iterable[tuple[str, str]]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for key, text in pairs:
        found.setdefault(key, []).append(text)
    return found


def series_rows(segment: Segment, files: Mapping[str, bytes]) -> list[Row]:
    return list(pq.read_table(io.BytesIO(files[segment.side_path("series.parquet")])).to_pylist())


def expected_series(rows: Iterable[Row]) -> list[Row]:
    """The table of series of the segment that holds these rows, in their order."""
    found = []
    for _, group in groupby(enumerate(rows), key=lambda numbered: numbered[1]["series"]):
        points = list(group)
        place, row = points[0]
        named = row["metric_name"], row["unit"], row["metric_type"]
        labels, resource = _texts(row["attributes"]), _texts(row["resource_attributes"])
        if "service.name" in resource:
            parts = (resource.get("service.namespace"), resource["service.name"])
            labels["job"] = "/".join(part for part in parts if part is not None)
        if "service.instance.id" in resource:
            labels["instance"] = resource["service.instance.id"]
        names = ["series", "metric_name", "metric_type", "temporality", "monotonic", "unit", "description"]
        names += ["service_name", "scope_name", "scope_version"]
        found.append(
            {
                **{name: row[name] for name in names},
                "first_row": place,
                "rows": len(points),
                "prometheus_name": metric_name(*named, monotonic=bool(row["monotonic"])),
                "prometheus_escaped": escaped_metric_name(*named, monotonic=bool(row["monotonic"])),
                "labels": _listed(labels),
                "as_sent": False,
                "resource": _listed(resource),
            }
        )
    return found


def _texts(attributes: Mapping[str, list[str]]) -> dict[str, str]:
    texts = {key: [_plain(decode_value(text)) for text in found] for key, found in attributes.items()}
    return {key: ";".join(filter(None, found)) for key, found in texts.items() if any(found)}


def _plain(value: Value) -> str:
    return value if isinstance(value, str) else plain_text(value)


def _listed(labels: Mapping[str, str]) -> list[Row]:
    ordered = sorted(labels.items(), key=lambda label: label[0].encode())
    return [{"name": name, "escaped": escaped_label_name(name), "value": value} for name, value in ordered]
