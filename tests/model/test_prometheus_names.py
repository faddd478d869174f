"""OTLP names as Prometheus' OTLP receiver translates them, case by case."""

from __future__ import annotations

import pytest

from lakerunner.model.labels.metric_view import Form, attribute_values
from lakerunner.model.prometheus import escaped_label_name, escaped_metric_name, metric_name

# name, unit, type, monotonic: UTF-8 form, escaped form
METRICS = [
    ("system.filesystem.usage", "By", "gauge", False, "system.filesystem.usage_bytes", "system_filesystem_usage_bytes"),
    ("requests", "", "sum", True, "requests_total", "requests_total"),
    ("requests_total", "", "sum", True, "requests_total", "requests_total"),
    ("requests", "", "sum", False, "requests", "requests"),
    ("total.requests", "", "sum", True, "total.requests_total", "requests_total"),
    ("process.cpu.time", "s", "sum", True, "process.cpu.time_seconds_total", "process_cpu_time_seconds_total"),
    ("cpu_seconds_total", "s", "sum", True, "cpu_seconds_total", "cpu_seconds_total"),
    ("response_time_seconds", "s", "gauge", False, "response_time_seconds", "response_time_seconds"),
    ("seconds.spent", "s", "gauge", False, "seconds.spent_seconds", "seconds_spent"),
    ("system.cpu.utilization", "1", "gauge", False, "system.cpu.utilization_ratio", "system_cpu_utilization_ratio"),
    ("cpu_usage_ratio", "1", "gauge", False, "cpu_usage_ratio", "cpu_usage_ratio"),
    ("items", "1", "sum", True, "items_total", "items_total"),
    ("items", "1", "sum", False, "items", "items"),
    ("size", "1", "histogram", False, "size", "size"),
    ("http.server.time", "s", "histogram", False, "http.server.time_seconds", "http_server_time_seconds"),
    ("request.size", "By", "exponential_histogram", False, "request.size_bytes", "request_size_bytes"),
    ("response", "ms", "summary", False, "response_milliseconds", "response_milliseconds"),
    ("throughput", "By/s", "gauge", False, "throughput_bytes_per_second", "throughput_bytes_per_second"),
    ("requests", "1/s", "gauge", False, "requests_per_second", "requests_per_second"),
    ("requests", "1/s", "sum", True, "requests_per_second_total", "requests_per_second_total"),
    ("requests_per_second", "1/s", "gauge", False, "requests_per_second", "requests_per_second_per_second"),
    ("speed", "m/min", "gauge", False, "speed_meters_per_min", "speed_meters_per_min"),
    ("speed", "m/m", "gauge", False, "speed_meters_per_minute", "speed_meters_per_minute"),
    ("active", "{connection}", "gauge", False, "active", "active"),
    ("rate", "By/{packet}", "gauge", False, "rate_bytes", "rate_bytes"),
    ("rate", "{packet}/s", "gauge", False, "rate_per_second", "rate_per_second"),
    ("custom", "custom_unit", "gauge", False, "custom_custom_unit", "custom_custom_unit"),
    ("odd", "unit@a#b/c", "gauge", False, "odd_unit@a#b_per_c", "odd_unit_a_b_per_c"),
    ("a__b", "u__v", "gauge", False, "a__b_u__v", "a_b_u_v"),
    ("disk", "%", "gauge", False, "disk_percent", "disk_percent"),
    ("ram", "TiBy", "gauge", False, "ram_tibibytes", "ram_tibibytes"),
    ("temperature", "Cel", "gauge", False, "temperature_celsius", "temperature_celsius"),
    ("spaced", " s ", "gauge", False, "spaced_seconds", "spaced_seconds"),
    ("2xx", "", "sum", True, "2xx_total", "_2xx_total"),
    ("job:rate:5m", "", "gauge", False, "job:rate:5m", "job:rate:5m"),
    ("métrique", "", "gauge", False, "métrique", "m_trique"),
    ("@#$%", "", "gauge", False, "@#$%", None),
    ("@#$%", "", "sum", True, "@#$%_total", "total"),
    ("", "", "gauge", False, "", None),
    ("total", "", "sum", True, "total_total", "total"),
    ("ratio", "1", "gauge", False, "ratio_ratio", "ratio"),
]

LABELS = [
    ("http.method", "http_method"),
    ("label:with:colons", "label_with_colons"),
    ("LabelWithCapitals", "LabelWithCapitals"),
    ("label!with&special$chars)", "label_with_special_chars_"),
    ("字符", "__"),
    ("123label", "key_123label"),
    ("_private", "key_private"),
    (".dotted", "key_dotted"),
    ("__reserved__", "__reserved__"),
    ("a__b", "a__b"),
    ("", ""),
]


@pytest.mark.parametrize(("name", "unit", "kind", "monotonic", "utf8", "escaped"), METRICS)
def test_metric_names(name: str, unit: str, kind: str, monotonic: bool, utf8: str, escaped: str | None) -> None:
    assert metric_name(name, unit, kind, monotonic=monotonic) == utf8
    assert escaped_metric_name(name, unit, kind, monotonic=monotonic) == escaped


@pytest.mark.parametrize(("name", "escaped"), LABELS)
def test_label_names(name: str, escaped: str) -> None:
    assert escaped_label_name(name) == escaped


def test_labels_that_become_one_are_joined_in_the_order_of_their_names() -> None:
    attributes = [("a-b", "a_b", "1"), ("a.b", "a_b", "2"), ("a_b", "a_b", "3"), ("c", "c", "4")]
    assert attribute_values(attributes, Form.ESCAPED) == {"a_b": "1;2;3", "c": "4"}
    assert attribute_values(attributes, Form.UTF8) == {"a-b": "1", "a.b": "2", "a_b": "3", "c": "4"}
