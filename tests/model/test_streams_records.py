"""Stored records as streams, lines and metadata: a table for each rule of docs/formats/streams.md."""

from __future__ import annotations

import math
from typing import Any

import pytest

from lakerunner.model.streams.label_names import label_name
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
from lakerunner.model.streams.stream_rules import RESOURCE_LABELS, SERVICE_LABELS, Action, AttributeRule, StreamRules
from lakerunner.model.typed_json import KeyValues, Value, encode_value
from model.test_streams_level import record

PLAIN = StreamRules(detect_levels=False)


@pytest.mark.parametrize(
    ("key", "name"),
    [
        ("service.name", "service_name"),
        ("a-b c/d", "a_b_c_d"),
        ("a..b", "a_b"),
        ("a__b", "a_b"),
        ("_a", "_a"),
        ("__a", "_a"),
        ("__a__b__", "__a_b__"),
        ("9lives", "key_9lives"),
        ("größe", "gr_e"),
        ("名前", "_"),
        ("a.", "a_"),
        ("UPPER", "UPPER"),
        ("", ""),
    ],
)
def test_label_names(key: str, name: str) -> None:
    assert label_name(key) == name


@pytest.mark.parametrize(
    ("value", "line"),
    [
        (42, "42"),
        (True, "true"),
        (None, ""),
        (b"\xff\x00", "/wA="),
        (0.5, "0.5"),
        (100.0, "100"),
        (-0.0, "-0"),
        (1e20, "100000000000000000000"),
        (1e21, "1e+21"),
        (1e-6, "0.000001"),
        (1.5e-7, "1.5e-7"),
        (math.nan, "json: unsupported value: NaN"),
        (-math.inf, "json: unsupported value: -Inf"),
        ((1, "<a>", None, (b"\x00",)), '[1,"\\u003ca\\u003e",null,["AA=="]]'),
        (KeyValues((("b", 1.0), ("a", "x\n&"), ("é", KeyValues(())))), '{"a":"x\\n\\u0026","b":1,"é":{}}'),
        (KeyValues((("a", 1), ("a", 2))), '{"a":2}'),
        (KeyValues((("a", math.inf),)), ""),
    ],
)
def test_bodies(value: Value, line: str) -> None:
    assert line_of("not this", encode_value(value), is_loki=False) == line


def test_lines_of_loki_are_exact() -> None:
    assert line_of("a line", None, is_loki=True) == "a line"
    assert line_of("/w==", encode_value(b"\xff"), is_loki=True) == "\udcff"


def test_the_default_resource_attributes_are_labels_and_the_others_metadata() -> None:
    assert len(RESOURCE_LABELS) == 18
    attributes: dict[str, Value] = {key: f"of {key}" for key in RESOURCE_LABELS}
    attributes |= {
        "host.name": "h",
        "k8s": KeyValues((("pod.uid", 7), ("9", KeyValues((("x", True),))))),
        "": "no name",
    }
    attributes["lakerunner.entity_refs"] = b"ours"
    found = stream_of(Resource(attributes, "https://opentelemetry.io/schemas/1.0"), PLAIN)
    assert found.labels == {key.replace(".", "_"): f"of {key}" for key in RESOURCE_LABELS}
    assert list(found.labels) == sorted(found.labels)
    assert found.metadata == {"host_name": "h", "k8s_pod_uid": "7", "k8s_9_x": "true"}


@pytest.mark.parametrize(
    ("schema_url", "attributes", "labels"),
    [
        (LOKI_STREAM, {"app": "a", "service_name": "s"}, {"app": "a", "service_name": "s"}),
        (LOKI_STREAM_SERVICE, {"service.name": "a", "app": "a"}, {"app": "a", "service_name": "a"}),
        (
            LOKI_STREAM,
            {"service.name": "own", "x": "1"},
            {"service.name": "own", "x": "1", "service_name": "unknown_service"},
        ),
        (LOKI_STREAM, {"app": "", "job": "j"}, {"job": "j", "service_name": "j"}),
        (LOKI_STREAM, {"service_name": "", "job": "j"}, {"job": "j", "service_name": "j"}),
        (LOKI_STREAM, {"host.name": "h"}, {"host.name": "h", "service_name": "unknown_service"}),
        ("", {"service.name": "s", "app": "a"}, {"service_name": "s"}),
        (
            "",
            {"k8s.job.name": "j", "k8s.container.name": "c"},
            {"k8s_job_name": "j", "k8s_container_name": "c", "service_name": "c"},
        ),
        ("", {"app": "not a label"}, {"service_name": "unknown_service"}),
        ("", {"service.name": "", "container.name": "c"}, {"container_name": "c", "service_name": "c"}),
    ],
)
def test_service_names(schema_url: str, attributes: dict[str, str], labels: dict[str, str]) -> None:
    assert stream_of(Resource(attributes, schema_url), PLAIN).labels == labels


def test_the_service_is_the_first_of_the_list_and_the_list_can_be_another() -> None:
    for place, name in enumerate(SERVICE_LABELS):
        labels = {other: f"is {other}" for other in reversed(SERVICE_LABELS[place:])}
        assert stream_of(Resource(labels, LOKI_STREAM), PLAIN).labels["service_name"] == f"is {name}"
    own = StreamRules(service_labels=("team",))
    assert stream_of(Resource({"app": "a", "team": "t"}, LOKI_STREAM), own).labels["service_name"] == "t"
    off = StreamRules(service_labels=())
    assert stream_of(Resource({"app": "a"}, LOKI_STREAM), off).labels == {"app": "a"}
    assert stream_of(Resource({}, ""), off).labels == {}


def metadata(fields: RecordFields, rules: StreamRules = PLAIN, **resource: Any) -> dict[str, str]:
    stream = stream_of(Resource(resource.get("attributes", {}), resource.get("schema_url", "")), rules)
    scope = scope_metadata_of(resource.get("scope", ScopeFields({}, "", "", 0)), rules)
    return metadata_of(fields, stream, scope, "", rules)


def test_fields_and_attributes_of_otlp_are_metadata() -> None:
    fields = RecordFields({"user.id": 7, "m": KeyValues((("a.b", "x"),))}, 10, 11, 9, "Info", 1, 2, "0a", "0b", "e")
    scope = ScopeFields({"s.k": 0.5}, "lib", "1.2", 3)
    assert metadata(fields, attributes={"host.name": "h", "service.name": "s"}, scope=scope) == {
        "user_id": "7",
        "m_a_b": "x",
        "observed_timestamp": "11",
        "severity_number": "9",
        "severity_text": "Info",
        "dropped_attributes_count": "1",
        "flags": "2",
        "trace_id": "0a",
        "span_id": "0b",
        "event_name": "e",
        "host_name": "h",
        "s_k": "0.5",
        "scope_name": "lib",
        "scope_version": "1.2",
        "scope_dropped_attributes_count": "3",
    }


def test_what_is_unset_is_no_metadata() -> None:
    assert metadata(record(timestamp=5, observed_timestamp=5)) == {}
    assert metadata(record(attributes={"empty": "", "null": None})) == {"empty": "", "null": ""}


def test_of_equal_names_the_last_in_lokis_order_counts() -> None:
    scope = ScopeFields({"a": "scope"}, "", "", 0)
    fields = record(attributes={"a": "record", "trace_id": "attribute", "b": "record"}, trace_id="0a")
    assert metadata(fields, attributes={"a": "resource", "b": "resource"}, scope=scope) == {
        "a": "scope",
        "b": "resource",
        "trace_id": "0a",
    }
    for pairs in ([("a.b", "1"), ("a_b", "2")], [("a_b", "2"), ("a.b", "1")]):  # in whatever order they were stored
        assert metadata(record(attributes=dict(pairs))) == {"a_b": "2"}


def test_metadata_of_a_loki_stream_is_as_sent_and_nothing_derived_is_in_it() -> None:
    sent = {"traceID": "0a", "level": "warn", "a__b": "x", "empty": "", "with.dot": "y"}
    fields = RecordFields(sent, 5, 0, 13, "warn", 0, 0, "0a", "", "")
    found = metadata(
        fields, StreamRules(), attributes={"service.name": "a", "app": "a"}, schema_url=LOKI_STREAM_SERVICE
    )
    assert found == {
        "traceID": "0a",
        "level": "warn",
        "a__b": "x",
        "empty": "",
        "with_dot": "y",
        "detected_level": "warn",
    }


def test_rules_move_attributes_between_labels_and_metadata_and_drop_them() -> None:
    rules = StreamRules(
        resource=(
            AttributeRule(Action.LABEL, ("host.name", "service.name")),
            AttributeRule(Action.DROP, regex="secret\\..*|service\\.name"),
        ),
        scope=(AttributeRule(Action.DROP, ("s",)),),
        record=(AttributeRule(Action.METADATA, ("r.kept",)), AttributeRule(Action.DROP, regex="r\\..*")),
        detect_levels=False,
    )
    attributes = {"host.name": "h", "service.name": "s", "secret.key": "k", "os": "o"}
    stream = stream_of(Resource(attributes, ""), rules)
    assert (stream.labels, stream.metadata) == ({"host_name": "h", "service_name": "s"}, {"os": "o"})
    fields = record(attributes={"r.kept": "1", "r.gone": "2", "other": "3"})
    assert metadata(fields, rules, scope=ScopeFields({"s": "1", "t": "2"}, "", "", 0)) == {
        "r_kept": "1",
        "other": "3",
        "t": "2",
    }


def test_without_the_defaults_only_the_own_rules_count() -> None:
    rules = StreamRules(resource=(AttributeRule(Action.LABEL, regex="cloud\\..+"),), ignore_defaults=True)
    stream = stream_of(Resource({"cloud.zone": "z", "service.name": "s"}, ""), rules)
    # A service that the rules make metadata is known: none is made up in its place.
    assert (stream.labels, stream.metadata) == ({"cloud_zone": "z"}, {"service_name": "s"})


def test_rules_do_not_touch_loki_streams() -> None:
    rules = StreamRules(
        resource=(AttributeRule(Action.DROP, regex=".*"),), record=(AttributeRule(Action.DROP, regex=".*"),)
    )
    stream = stream_of(Resource({"app": "a"}, LOKI_STREAM), rules)
    assert stream.labels == {"app": "a", "service_name": "a"}
    assert metadata_of(record(attributes={"k": "v"}), stream, {}, "", rules) == {"k": "v", "detected_level": "unknown"}
