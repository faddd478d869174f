"""Segments of remote-write: names and labels as they were sent, and series told apart by them alone."""

from __future__ import annotations

import io
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lakerunner.model.organization import DEFAULT_ORGANIZATION
from lakerunner.model.segment import Segment, field_fingerprints
from lakerunner.model.signal import METRICS
from lakerunner.pipeline.make_segments import make_segments
from pipeline.remote_write_oracle import framed, message_type, raw_of

Labels = list[tuple[str, str]]
COUNTER, GAUGE, HISTOGRAM = 1, 2, 3


def series_v1(labels: Labels, *samples: tuple[int, float]) -> dict[str, Any]:
    return {
        "labels": [{"name": name, "value": value} for name, value in labels],
        "samples": [{"timestamp": time, "value": value} for time, value in samples],
    }


def v1(*series: dict[str, Any], **more: Any) -> bytes:
    data: bytes = message_type("prw1")(timeseries=series, **more).SerializeToString()
    return data


def v2(*series: tuple[Labels, dict[str, Any]]) -> bytes:
    """Series with their labels; a unit or help among their metadata is a text."""
    symbols = {"": 0}

    def number(text: str) -> int:
        return symbols.setdefault(text, len(symbols))

    made = []
    for labels, fields in series:
        metadata = {
            (f"{name}_ref" if name != "type" else name): number(value) if name != "type" else value
            for name, value in fields.pop("metadata", {}).items()
        }
        refs = [number(text) for label in labels for text in label]
        made.append({"labels_refs": refs, **fields, **({"metadata": metadata} if metadata else {})})
    data: bytes = message_type("prw2")(timeseries=made, symbols=symbols).SerializeToString()
    return data


def made(form: str, *messages: bytes) -> tuple[Segment, pa.Table, list[dict[str, Any]]]:
    """The one segment of these messages: its index row, its points, its series."""
    files: dict[str, bytes] = {}
    raw = raw_of(framed(*messages), form, modified_ns=1)
    result = make_segments(
        METRICS, DEFAULT_ORGANIZATION.id, "test", [raw], lambda path, data: files.update({path: bytes(data)})
    )
    assert result.failed == ()
    (segment,) = result.segments
    points = pq.read_table(io.BytesIO(files[segment.path]))
    return segment, points, pq.read_table(io.BytesIO(files[segment.side_path("series.parquet")])).to_pylist()


def plain(labels: list[dict[str, str]]) -> Labels:
    return [(label["name"], label["value"]) for label in labels]


NAMES = ("http_requests", "http_requests_total", "node:load:avg", "http.requests", "_hidden", "9lives", "größe")
ESCAPED = ("http_requests", "http_requests_total", "node:load:avg", "http_requests", "_hidden", "_lives", "gr__e")


@pytest.mark.parametrize("form", ["prw1", "prw2"])
def test_a_metric_is_called_as_it_was_sent(form: str) -> None:
    """Whatever type and unit are said of it."""
    sample = {"value": 1, "timestamp": 1}
    if form == "prw1":
        message = v1(*(series_v1([("__name__", name)], (1, 1)) for name in NAMES))
    else:
        metadata = {"type": COUNTER, "unit": "seconds"}
        message = v2(*(([("__name__", name)], {"samples": [sample], "metadata": dict(metadata)}) for name in NAMES))
    segment, _, series = made(form, message)
    found = {row["metric_name"]: (row["prometheus_name"], row["prometheus_escaped"]) for row in series}
    assert found == {name: (name, escaped) for name, escaped in zip(NAMES, ESCAPED, strict=True)}
    assert {number for name in NAMES for number in field_fingerprints("metric_name", [name])} <= set(
        segment.fingerprints
    )
    assert not set(field_fingerprints("metric_name", ["http_requests_seconds_total"])[-1:]) & set(segment.fingerprints)


def test_a_gauge_of_unit_1_gets_no_ratio() -> None:
    fields = {"samples": [{"value": 1, "timestamp": 1}], "metadata": {"type": GAUGE, "unit": "1"}}
    _, _, (series,) = made("prw2", v2(([("__name__", "load")], fields)))
    assert (series["prometheus_name"], series["unit"]) == ("load", "1")


def test_labels_are_as_they_were_sent() -> None:
    labels = [("_private", "1"), ("0th", "2"), ("a.b", "3"), ("instance", "i:1"), ("job", "api"), ("service.name", "s")]
    _, _, (series,) = made("prw1", v1(series_v1([("__name__", "up"), *labels], (1, 1))))
    assert plain(series["labels"]) == sorted(labels)
    escaped = ["_th", "_private", "a_b", "instance", "job", "service_name"]
    assert [label["escaped"] for label in series["labels"]] == escaped
    assert (series["service_name"], series["resource"], series["as_sent"]) == ("api", [], True)


def test_no_job_or_instance_is_made_up() -> None:
    _, _, (series,) = made("prw1", v1(series_v1([("__name__", "up"), ("service.name", "cart")], (1, 1))))
    assert plain(series["labels"]) == [("service.name", "cart")]


def test_metadata_and_order_of_labels_do_not_split_a_series() -> None:
    labels = [("__name__", "visits_total"), ("job", "api"), ("page", "home")]
    said = [{}, {"type": COUNTER}, {"type": COUNTER, "unit": "s"}, {"type": GAUGE, "help": "Visits."}]
    parts = [
        (labels[::-1] if time % 2 else labels, {"samples": [{"value": time, "timestamp": time}], "metadata": metadata})
        for time, metadata in enumerate(said, 1)
    ]
    _, points, (series,) = made("prw2", *(v2(part) for part in parts))
    assert (series["rows"], series["prometheus_name"]) == (4, "visits_total")
    assert points["metric_type"].to_pylist() == ["unknown", "sum", "sum", "gauge"]
    assert points["int_value"].to_pylist() == [1, 2, 3, 4]


def test_both_versions_know_a_series_by_the_same_digest() -> None:
    labels = [("__name__", "up"), ("job", "api")]
    sample = {"value": 1, "timestamp": 1}
    _, _, (one,) = made("prw1", v1(series_v1(labels, (1, 1))))
    _, _, (two,) = made("prw2", v2((labels, {"samples": [sample], "metadata": {"type": GAUGE, "unit": "x"}})))
    assert one["series"] == two["series"]


def test_a_label_tells_series_apart_and_so_does_the_name() -> None:
    names = [[("__name__", "up")], [("__name__", "up"), ("a", "1")], [("__name__", "up"), ("a", "2")], [("a", "1")]]
    _, _, series = made("prw1", v1(*(series_v1(labels, (1, 1)) for labels in names)))
    assert len({row["series"] for row in series}) == 4


def test_samples_and_native_histograms_are_one_series_of_two_types() -> None:
    """A native histogram is of the type that it is, also where the metadata says counter."""
    spans = {"positive_spans": [{"offset": 0, "length": 1}], "positive_deltas": [3]}
    histograms = [
        {"timestamp": 2, "count_int": 3, "sum": 1.5, **spans},
        {"timestamp": 3, "count_int": 3, "schema": -53, "custom_values": [1.0], **spans},
    ]
    fields = {"samples": [{"value": 7, "timestamp": 1}], "histograms": histograms, "metadata": {"type": COUNTER}}
    _, points, (series,) = made("prw2", v2(([("__name__", "latency")], fields)))
    assert series["rows"] == 3
    assert points["metric_type"].to_pylist() == ["sum", "exponential_histogram", "histogram"]
    assert points["monotonic"].to_pylist() == [True, None, None]
    assert points["temporality"].to_pylist() == ["cumulative"] * 3


def test_a_metadata_entry_is_of_no_series() -> None:
    entry = {"type": COUNTER, "metric_family_name": "up", "help": "is it"}
    message = v1(series_v1([("__name__", "up"), ("type", "counter")], (0, 1)), metadata=[entry])
    _, _, series = made("prw1", message)
    by_type = {row["metric_type"]: row for row in series}
    assert by_type["metadata"]["series"] != by_type["unknown"]["series"]
    assert (by_type["metadata"]["prometheus_name"], by_type["metadata"]["prometheus_escaped"]) == (None, None)
    assert by_type["unknown"]["prometheus_name"] == "up"
