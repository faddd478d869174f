"""What there is: series, labels, metadata, exemplars; and which segments the index is asked for."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from lakerunner.model.condition import Equals
from lakerunner.model.labels import labels_of
from lakerunner.model.labels.matcher import Matcher, SelectorTest
from lakerunner.model.labels.metric_view import Form, form_of, metric_conditions
from lakerunner.plan.scan import fingerprint_groups, may_hold
from lakerunner.query.metrics.list_series import (
    Exemplar,
    MetricFamily,
    exemplars_of,
    label_names,
    label_values,
    metadata_of,
    series_of,
)
from query.metric_lake import ALL, EVERY, NS, T0, MetricLake, gauge, label, metric, named, prom, written

RESOURCE = {"service.name": "cart", "host.name": "h1"}
TRACE, SPAN = bytes(range(16)), bytes(range(8))


def latency(one: Any) -> None:
    one.description, one.histogram.aggregation_temporality = "How long.", 2
    point = one.histogram.data_points.add(time_unix_nano=T0 * NS, count=3, sum=1.5)
    point.explicit_bounds.extend([0.5, 1.0])
    point.bucket_counts.extend([1, 1, 1])
    label(point, {"http.route": "/"})
    low = point.exemplars.add(time_unix_nano=(T0 - 5) * NS, as_double=0.25, trace_id=TRACE, span_id=SPAN)
    low.filtered_attributes.add(key="user").value.int_value = 42
    high = point.exemplars.add(time_unix_nano=(T0 - 4) * NS, as_int=7, trace_id=TRACE)
    high.filtered_attributes.add(key="long").value.string_value = "x" * 120


def counter(one: Any) -> None:
    one.sum.aggregation_temporality, one.sum.is_monotonic = 2, True
    point = one.sum.data_points.add(time_unix_nano=T0 * NS, as_int=1)
    point.exemplars.add(time_unix_nano=T0 * NS, as_double=1.0, trace_id=TRACE)


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> MetricLake:
    lake = MetricLake(tmp_path_factory.mktemp("listing") / "lake")
    lake.add(metric("lat", latency, RESOURCE, "s"), metric("hits", counter, RESOURCE, "{hit}"))
    lake.add(gauge("queue.size", [(T0 + 7, 1.0)], RESOURCE, **{"queue.name": "q"}))
    lake.add_written(written({"__name__": "up", "job": "prom"}, [(T0, 1.0)]))
    return lake


def test_series_of_all_kinds_are_listed_once(lake: MetricLake) -> None:
    found = list(series_of(lake.metrics, lake.segments, EVERY, *ALL))
    of_lat = {"http_route": "/", "job": "cart"}
    assert len(found) == len(set(found))
    assert set(found) == {
        prom("lat_seconds", **of_lat),
        prom("lat_seconds_sum", **of_lat),
        prom("lat_seconds_count", **of_lat),
        *(prom("lat_seconds_bucket", le=le, **of_lat) for le in ("0.5", "1", "+Inf")),
        prom("hits_total", job="cart"),
        prom("queue_size", queue_name="q", job="cart"),
        prom("target_info", host_name="h1", job="cart"),
        prom("up", job="prom"),
    }
    assert list(series_of(lake.metrics, lake.segments, named("lat_seconds_bucket", Matcher("le", "=", "1")), *ALL)) == [
        prom("lat_seconds_bucket", le="1", **of_lat)
    ]


def test_names_and_values_of_labels(lake: MetricLake) -> None:
    names = label_names(lake.metrics, lake.segments, EVERY)
    assert names == {"__name__", "http_route", "job", "le", "queue_name", "host_name"}
    utf8 = label_names(lake.metrics, lake.segments, (Matcher("queue.name", "!=", ""),))
    assert utf8 == {"__name__", "job", "queue.name"}
    metrics, segments = lake.metrics, lake.segments
    assert label_values(metrics, segments, EVERY, "job", ALL) == {"cart", "prom"}
    assert label_values(metrics, segments, named("lat_seconds_bucket"), "le", ALL) == {"0.5", "1", "+Inf"}
    assert label_values(metrics, segments, (Matcher("le", "=", "1"),), "__name__", ALL) == {"lat_seconds_bucket"}
    assert label_values(metrics, segments, EVERY, "__name__", (T0 + 1, T0 + 2)) >= {"lat_seconds_bucket", "up"}


def test_what_is_said_of_metrics(lake: MetricLake) -> None:
    assert set(metadata_of(lake.metrics, lake.segments)) == {
        MetricFamily("lat_seconds", "histogram", "seconds", "How long."),
        MetricFamily("hits_total", "counter", "", ""),
        MetricFamily("queue_size", "gauge", "", ""),
        MetricFamily("target_info", "gauge", "", "Target metadata"),
        MetricFamily("up", "unknown", "", ""),
    }
    assert "queue.size" in {family.name for family in metadata_of(lake.metrics, lake.segments, Form.UTF8)}


def test_metadata_entries_of_remote_write_are_metadata_and_no_series(tmp_path: Path) -> None:
    lake = MetricLake(tmp_path / "lake")
    # MetricMetadata: type 1 (counter), the family, help, unit
    entry = b"\x08\x01\x12\x04hits\x22\x04Hits\x2a\x01u"
    message = b"\x1a" + bytes([len(entry)]) + entry
    lake.add_data(bytes([len(message)]) + message, "prw1")
    assert list(series_of(lake.metrics, lake.segments, EVERY, *ALL)) == []
    assert list(metadata_of(lake.metrics, lake.segments)) == [MetricFamily("hits", "counter", "u", "Hits")]


def test_exemplars_are_where_their_values_belong(lake: MetricLake) -> None:
    low = Exemplar(labels_of({"trace_id": TRACE.hex(), "span_id": SPAN.hex(), "user": "42"}), 0.25, T0 - 5)
    high = Exemplar(labels_of({"trace_id": TRACE.hex()}), 7.0, T0 - 4)
    one = Exemplar(labels_of({"trace_id": TRACE.hex()}), 1.0, T0)
    of_lat = {"http_route": "/", "job": "cart"}
    assert dict(exemplars_of(lake.metrics, lake.segments, EVERY, *ALL)) == {
        prom("lat_seconds", **of_lat): [low, high],
        prom("lat_seconds_bucket", le="0.5", **of_lat): [low],
        prom("lat_seconds_bucket", le="+Inf", **of_lat): [high],
        prom("hits_total", job="cart"): [one],
    }
    some = exemplars_of(
        lake.metrics, lake.segments, named("lat_seconds_bucket", Matcher("le", "=", "+Inf")), T0 - 4, T0
    )
    assert list(some) == [(prom("lat_seconds_bucket", le="+Inf", **of_lat), [high])]


@pytest.mark.parametrize(
    ("matchers", "form"),
    [
        (named("a_b"), Form.ESCAPED),
        (named("a.b"), Form.UTF8),
        ((Matcher("x.y", "=", ""),), Form.UTF8),
        ((Matcher("__name__", "=~", "a.b"),), Form.ESCAPED),
        ((Matcher("job", "=", "a.b"),), Form.ESCAPED),
        ((Matcher("__name__", "=", ""), Matcher("job", "=", "a")), Form.ESCAPED),
    ],
)
def test_the_form_follows_from_names(matchers: tuple[Matcher, ...], form: Form) -> None:
    assert form_of(matchers) is form


def test_matchers_take_whole_values_and_absent_labels_for_empty() -> None:
    labels = prom("up", job="api", note="a\nb")
    assert SelectorTest((Matcher("job", "=~", "a.i"), Matcher("note", "=~", "a.b"), Matcher("zone", "=", "")))(labels)
    assert not SelectorTest((Matcher("job", "=~", "a"),))(labels)
    assert SelectorTest((Matcher("job", "!~", "a"), Matcher("zone", "!=", "x")))(labels)
    assert not SelectorTest((Matcher("zone", "=~", ".+"),))(labels)


def test_conditions_pick_every_segment_that_can_have_the_metric(lake: MetricLake) -> None:
    assert metric_conditions(named("lat_seconds_bucket")) == (
        Equals("metric_name", ("lat_seconds_bucket", "lat_seconds")),
    )
    assert metric_conditions(named("target_info")) == ()
    assert metric_conditions((Matcher("__name__", "=~", "a|b"),)) == ()
    first, second, third = lake.segments
    for name, holding in {
        "lat_seconds_bucket": first,
        "lat_seconds": first,
        "queue_size": second,
        "queue.size": second,
        "up": third,
    }.items():
        groups = fingerprint_groups("metrics", metric_conditions(named(name)))
        assert [one for one in lake.segments if may_hold(one.fingerprints, groups)] == [holding], name
