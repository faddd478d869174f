"""The same lines by Loki push, by OTLP and as files give the streams, names and levels that docs/formats/streams.md
states, before and after compaction."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import orjson
import pytest
from google.protobuf.json_format import MessageToJson
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest

from conformance.answer import LogEntry
from conformance.logql_push import ingest_lines, push_request
from fuzz.logql.lakes import compacted
from lakerunner.bus.topics import IngestBox
from lakerunner.logql.log_plan import LogqlQuestion, compile_logql
from lakerunner.model.protobuf import varint
from lakerunner.model.source import SourceObject
from lakerunner.objects.open import StoreAddress, open_store
from lakerunner.query.options import Options
from query.sample_lake import OWN, START, Lake

Texts = Mapping[str, str]


@dataclass(frozen=True)
class Sent:
    """A line and what it is sent with. `stream` and `metadata` are what LogQL shows, `detected_level` is `level`."""

    line: str
    level: str
    sent: Texts = field(default_factory=dict)
    attributes: Texts = field(default_factory=dict)
    stream: Texts = field(default_factory=dict)
    metadata: Texts | None = None
    severity: tuple[str, int] = ("", 0)


# ---- what both doors have: the level of a line, and of metadata

LEVELS = [
    Sent(line, level)
    for line, level in (
        ("nothing here", "unknown"),
        ("an ERROR happened", "error"),
        ("[warn] slow", "warn"),
        ("WARNING: slow", "warn"),
        ("information", "unknown"),
        ("terrors", "unknown"),
        ("err, fatal", "error"),
        ('{"level":"Debug","msg":"error"}', "debug"),
        ('{"a":{"severity":"wrn"}}', "warn"),
        ('{"a":{"b":{"level":"error"}}}', "error"),  # too deep as a key, but a word
        ('{"a":{"b":{"level":"dbg"}}}', "unknown"),
        ('{"level":"odd","msg":"info"}', "info"),
        ("level=trc msg=error", "trace"),
        ("lvl=info level=critical", "critical"),
        ("SEVERITY=fatal", "fatal"),
        ("level= error", "error"),
    )
]
WORDS = [
    Sent("error", level, attributes={name: value}, metadata={name: value})
    for name, value, level in (
        ("level", "dbg", "debug"),
        ("LVL", "information", "info"),
        ("severity", "Notice", "Notice"),
        ("SeverityText", "WRN", "warn"),
        ("detected_level", "mine", "mine"),
        ("levels", "debug", "error"),
    )
]

# ---- each door

SERVICES = "service app application app_name name app_kubernetes_io_name container container_name k8s_container_name"
SERVICE_LABELS = (*SERVICES.split(), "component", "workload", "job", "k8s_job_name")
PUSHED = [
    *(
        Sent(
            "x",
            "unknown",
            dict.fromkeys(SERVICE_LABELS[place:], "v") | {name: "first"},
            stream={"service_name": "first"},
        )
        for place, name in enumerate(SERVICE_LABELS)
    ),
    Sent("x", "unknown", {"other": "v"}, stream={"service_name": "unknown_service"}),
    Sent("x", "unknown", {"service_name": "own", "app": "v"}),
    Sent("info", "error", {"app": "a", "level": "Error"}, stream={"service_name": "a"}),
    Sent("info", "odd", {"app": "a", "severity": "odd"}, {"level": "error"}, {"service_name": "a"}, {"level": "error"}),
    Sent("x", "unknown", {"app": "a"}, {"a__b": "1"}, {"service_name": "a"}, {"a__b": "1"}),
    *(Sent(one.line, one.level, {"app": "a"}, one.attributes, {"service_name": "a"}, one.metadata) for one in LEVELS),
    *(Sent(one.line, one.level, {"app": "a"}, one.attributes, {"service_name": "a"}, one.metadata) for one in WORDS),
]
OWN_SERVICE = {"service.name": "s"}
SHOWN_SERVICE = {"service_name": "s"}
NUMBERS = [
    (1, "trace"),
    (4, "trace"),
    (5, "debug"),
    (9, "info"),
    (12, "info"),
    (13, "warn"),
    (17, "error"),
    (24, "fatal"),
]
EXPORTED = [
    Sent("x", "unknown", OWN_SERVICE, stream=SHOWN_SERVICE),
    Sent(
        "x",
        "unknown",
        {"k8s.container.name": "c", "k8s.job.name": "j"},
        stream={"service_name": "c", "k8s_container_name": "c", "k8s_job_name": "j"},
    ),
    Sent("x", "unknown", {"k8s.job.name": "j"}, stream={"service_name": "j", "k8s_job_name": "j"}),
    Sent("x", "unknown", {"cloud.region": "r"}, stream={"service_name": "unknown_service", "cloud_region": "r"}),
    Sent("x", "unknown", {**OWN_SERVICE, "host.name": "h"}, stream=SHOWN_SERVICE, metadata={"host_name": "h"}),
    *(
        Sent("fatal", level, OWN_SERVICE, {}, SHOWN_SERVICE, {"severity_number": str(number)}, ("", number))
        for number, level in NUMBERS
    ),
    Sent(
        "x",
        "warn",
        OWN_SERVICE,
        {},
        SHOWN_SERVICE,
        {"severity_text": "Warning", "severity_number": "17"},
        ("Warning", 17),
    ),
    *(
        Sent("x", "unknown", OWN_SERVICE, {key: "v"}, SHOWN_SERVICE, {name: "v"})
        for key, name in (
            ("a.b", "a_b"),
            ("a--b", "a_b"),
            ("1st", "key_1st"),
            ("http.request.id", "http_request_id"),
            ("é", "_"),
        )
    ),
    *(Sent(one.line, one.level, OWN_SERVICE, one.attributes, SHOWN_SERVICE, one.metadata) for one in (*LEVELS, *WORDS)),
]


def time_of(number: int) -> int:
    return START + number * 1000


def pushed() -> bytes:
    entries = [
        LogEntry(time_of(n), one.line, tuple(sorted(one.sent.items())), tuple(one.attributes.items()))
        for n, one in enumerate(PUSHED)
    ]
    return push_request(entries)


def pushed_json() -> bytes:
    streams = [
        {"stream": dict(one.sent), "values": [[str(time_of(n)), one.line, dict(one.attributes)]]}
        for n, one in enumerate(PUSHED)
    ]
    return json.dumps({"streams": streams}).encode()


def exported() -> ExportLogsServiceRequest:
    request = ExportLogsServiceRequest()
    for number, one in enumerate(EXPORTED):
        resource = request.resource_logs.add()
        for key, value in one.sent.items():
            resource.resource.attributes.add(key=key).value.string_value = value
        record = resource.scope_logs.add().log_records.add(time_unix_nano=time_of(number))
        record.severity_text, record.severity_number = one.severity
        record.body.string_value = one.line
        for key, value in one.attributes.items():
            record.attributes.add(key=key).value.string_value = value
    return request


def doors() -> Iterator[tuple[str, bytes, list[Sent]]]:
    for ending, push in (("lokipb", pushed()), ("lokijson", pushed_json())):
        yield ending, varint(len(push)) + push, PUSHED
    yield "binpb", exported().SerializeToString(), EXPORTED
    yield "json", MessageToJson(exported()).encode(), EXPORTED


def shown(lake: Lake) -> dict[int, tuple[str, Texts, Texts]]:
    question = LogqlQuestion('{service_name=~".+"}', START, time_of(1000), 1, limit=None)
    answer = lake.engine().engine.answer(OWN, compile_logql(question, START), Options(START))
    rows = [row for batch in answer for row in batch.to_pylist()]
    assert len({row["timestamp"] for row in rows}) == len(rows)
    return {row["timestamp"]: (row["line"], orjson.loads(row["stream"]), orjson.loads(row["metadata"])) for row in rows}


@pytest.mark.parametrize(("ending", "data", "sent"), list(doors()), ids=[ending for ending, _, _ in doors()])
def test_streams_names_and_levels(tmp_path: Path, ending: str, data: bytes, sent: list[Sent]) -> None:
    lake = Lake(tmp_path)
    address = StoreAddress((tmp_path / "store").as_uri())
    store = open_store(address)
    key = f"otel-raw/{OWN}/doors/logs.{ending}"
    store.put(key, data)
    meta = store.head(key)
    source = SourceObject(store.bucket, key, meta.etag or "", meta.size, meta.modified_ns)
    result = ingest_lines(address, IngestBox(OWN, "doors", "logs", (source,)))
    assert not result.failed
    lake.all += result.segments
    before = shown(lake)
    is_loki = sent is PUSHED
    for number, one in enumerate(sent):
        stream = {**one.sent, **one.stream} if is_loki else one.stream
        metadata = {"detected_level": one.level, **(one.metadata or {})}
        assert before[time_of(number)] == (one.line, stream, metadata), one
    assert len(before) == len(sent)
    lake.all = compacted(lake, lake.all)
    assert shown(lake) == before
