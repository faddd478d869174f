"""Records to OTLP metrics, against requests built with protobuf."""

from __future__ import annotations

from typing import Any

import pytest

from pipeline.transcode_oracle import REQUESTS, add, reason, same, transcoded

NS = 1_700_000_000_123_456_789


def metrics_request(*metrics: tuple[str, dict[str, Any], str, list[tuple[dict[str, Any], dict[str, Any]]]]) -> Any:
    """Of (service, head, gauge or sum..., points as (fields, attributes)), one resource for each."""
    request = REQUESTS["metrics"]()
    for service, head, kind, points in metrics:
        resource_metrics = request.resource_metrics.add()
        if service:
            add(resource_metrics.resource.attributes, {"service.name": service})
        metric = resource_metrics.scope_metrics.add().metrics.add(**head)
        if kind == "gauge":
            data = metric.gauge
        else:
            data = metric.sum
            data.aggregation_temporality = 1 if "delta" in kind else 2
            data.is_monotonic = "monotonic" in kind
        for fields, attributes in points:
            add(data.data_points.add(**fields).attributes, attributes)
    return request


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        (
            '{"name":"cpu","value":0.5,"timestamp":"2023-11-14T22:13:20.123456789Z","labels":{"core":1},"unit":"1",'
            '"description":"used","host":"a","service":"s","start_time":1700000000}',
            (
                "s",
                {"name": "cpu", "unit": "1", "description": "used"},
                "gauge",
                [
                    (
                        {"as_double": 0.5, "time_unix_nano": NS, "start_time_unix_nano": 1_700_000_000 * 10**9},
                        {"core": 1, "host": "a"},
                    )
                ],
            ),
        ),
        ('{"metric":"n","value":5,"type":"Counter"}', ("", {"name": "n"}, "sum monotonic", [({"as_int": 5}, {})])),
        ('{"__name__":"n","value":"5","type":"sum"}', ("", {"name": "n"}, "sum", [({"as_int": 5}, {})])),
        (
            '{"name":"n","value":-1,"type":"METRIC_TYPE_SUM","temporality":"AGGREGATION_TEMPORALITY_DELTA","monotonic":true}',
            ("", {"name": "n"}, "sum delta monotonic", [({"as_int": -1}, {})]),
        ),
        (
            '{"name":"n","value":1,"type":"histogram","temporality":"delta"}',
            ("", {"name": "n"}, "gauge", [({"as_int": 1}, {"type": "histogram", "temporality": "delta"})]),
        ),
        (
            '{"name":"n","value":1,"type":"counter","temporality":"often","monotonic":"maybe"}',
            ("", {"name": "n"}, "sum monotonic", [({"as_int": 1}, {"temporality": "often", "monotonic": "maybe"})]),
        ),
        ('{"name":"n","value":"NaN"}', ("", {"name": "n"}, "gauge", [({"as_double": float("nan")}, {})])),
        ('{"name":"n","value":"+Inf"}', ("", {"name": "n"}, "gauge", [({"as_double": float("inf")}, {})])),
        ('{"name":"n","value":null}', ("", {"name": "n"}, "gauge", [({"flags": 1}, {"value": None})])),
        ('{"name":"n"}', ("", {"name": "n"}, "gauge", [({"flags": 1}, {})])),
        (
            '{"name":"n","value":18446744073709551615}',
            ("", {"name": "n"}, "gauge", [({"as_double": 2.0**64}, {"value": "18446744073709551615"})]),
        ),
        (
            '{"name":"n","value":100000000000000000000000001}',
            ("", {"name": "n"}, "gauge", [({"as_double": 1e26}, {"value": "100000000000000000000000001"})]),
        ),
        (
            '{"name":"n","value":1,"timestamp":"late","labels":"x=y"}',
            ("", {"name": "n"}, "gauge", [({"as_int": 1}, {"timestamp": "late", "labels": "x=y"})]),
        ),
    ],
)
def test_a_point(text: str, wanted: Any) -> None:
    same(transcoded("jsonl", "metrics", text.encode()), metrics_request(wanted))


def test_points_of_one_metric_stand_together_in_their_order() -> None:
    lines = [
        '{"name":"a","value":1,"service":"s"}',
        '{"name":"b","value":2,"service":"s"}',
        '{"name":"a","value":3,"service":"s"}',
        '{"name":"a","value":4,"service":"t"}',
        '{"name":"a","value":5,"service":"s","unit":"s"}',
    ]
    found = transcoded("jsonl", "metrics", "\n".join(lines).encode())
    points = [
        (metric.name, metric.unit, [point.as_int for point in metric.gauge.data_points])
        for resource in found.resource_metrics
        for metric in resource.scope_metrics[0].metrics
    ]
    assert points == [("a", "", [1, 3]), ("b", "", [2]), ("a", "s", [5]), ("a", "", [4])]


def test_csv_says_the_same() -> None:
    data = b'name,value,type,time,labels,service\nn,1.5,counter,1700000000,"{""a"":""b""}",s\nn,2,counter,,,s\n'
    point: dict[str, Any] = {"as_double": 1.5, "time_unix_nano": 1_700_000_000 * 10**9}
    points = [(point, {"a": "b"}), ({"as_int": 2}, {})]
    same(transcoded("csv", "metrics", data), metrics_request(("s", {"name": "n"}, "sum monotonic", points)))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('{"value":1}', "line 1: a metric needs a name"),
        ('{"name":7,"value":1}', "line 1: a metric needs a name"),
        ('{"name":"n","value":1}\n{"name":"n","value":"high"}', "line 2: the value 'high' of 'n' is not a number"),
        ('{"name":"n","value":true}', "line 1: the value 'True' of 'n' is not a number"),
        ('{"name":"n","value":[1]}', "line 1: the value '[1]' of 'n' is not a number"),
    ],
)
def test_what_is_no_metric_is_refused_with_its_line(text: str, expected: str) -> None:
    assert reason("jsonl", "metrics", text.encode()).startswith(expected)
