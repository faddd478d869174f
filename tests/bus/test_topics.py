"""Messages on the wire."""

from __future__ import annotations

from dataclasses import replace
from typing import Any
from uuid import UUID

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakerunner.bus import topics
from lakerunner.bus.topics import (
    Candidate,
    CompactBox,
    IngestBox,
    Message,
    ObjectArrived,
    RollupBox,
    SegmentsCommitted,
    decode,
    encode,
)
from lakerunner.model.errors import Corrupt
from lakerunner.model.source import SourceObject

ORGANIZATION = UUID("12340000-0000-4000-8000-000000000000")
SOURCE = SourceObject("lake", "otel-raw/default/shop/logs 1.binpb", '"e"', 5, 1_700_000_000_000_000_000)
ARRIVED = ObjectArrived(ORGANIZATION, "shop", "logs", SOURCE)
WIRE: dict[str, Any] = {
    "type": "ObjectArrived",
    "version": 1,
    "organization": "12340000-0000-4000-8000-000000000000",
    "collector": "shop",
    "signal": "logs",
    "source": {
        "bucket": "lake",
        "key": "otel-raw/default/shop/logs 1.binpb",
        "etag": '"e"',
        "size": 5,
        "modified_ns": 1_700_000_000_000_000_000,
    },
}

texts = st.text(st.characters(codec="utf-8"), max_size=20)
names = st.text(st.characters(codec="utf-8"), min_size=1, max_size=20)
counts = st.integers(0, 2**31 - 1)
sources = st.builds(
    SourceObject, names, names, names, size=st.integers(0, 2**63 - 1), modified_ns=st.integers(-(2**63), 2**63 - 1)
)
segments = st.lists(st.uuids(), max_size=5).map(tuple)
candidates = st.lists(
    st.builds(Candidate, st.uuids(), st.integers(-(2**63), 2**63 - 1), st.integers(1, 2**63 - 1)), max_size=5
).map(tuple)
messages = st.one_of(
    st.builds(ObjectArrived, st.uuids(), texts, texts, sources),
    st.builds(IngestBox, st.uuids(), texts, texts, st.lists(sources, max_size=5).map(tuple)),
    st.builds(SegmentsCommitted, st.uuids(), texts, texts, counts, counts, candidates),
    st.builds(CompactBox, st.uuids(), texts, texts, counts, counts, segments),
    st.builds(RollupBox, st.uuids(), texts, counts, counts, segments),
)


@given(messages)
def test_every_message_comes_back_as_it_was(message: Message) -> None:
    assert decode(encode(message)) == message


def test_the_wire_form_is_this() -> None:
    assert orjson.loads(encode(ARRIVED)) == WIRE
    assert list(orjson.loads(encode(ARRIVED)))[:2] == ["type", "version"]
    assert decode(orjson.dumps(WIRE)) == ARRIVED


SEGMENT = UUID("56780000-0000-4000-8000-000000000000")
GOLDEN: list[tuple[Message, dict[str, Any]]] = [
    (
        SegmentsCommitted(ORGANIZATION, "shop", "logs", 0, 1, (Candidate(SEGMENT, 1_700_000_000_000_000_000, 4096),)),
        {
            "type": "SegmentsCommitted",
            "version": 2,
            "organization": "12340000-0000-4000-8000-000000000000",
            "collector": "shop",
            "signal": "logs",
            "frequency_ms": 0,
            "level": 1,
            "segments": [
                {
                    "id": "56780000-0000-4000-8000-000000000000",
                    "start_ns": 1_700_000_000_000_000_000,
                    "bytes": 4096,
                }
            ],
        },
    ),
    (
        CompactBox(ORGANIZATION, "shop", "metrics", 10_000, 2, (SEGMENT,)),
        {
            "type": "CompactBox",
            "version": 1,
            "organization": "12340000-0000-4000-8000-000000000000",
            "collector": "shop",
            "signal": "metrics",
            "frequency_ms": 10_000,
            "level": 2,
            "segments": ["56780000-0000-4000-8000-000000000000"],
        },
    ),
    (
        RollupBox(ORGANIZATION, "shop", 0, 10_000, (SEGMENT,)),
        {
            "type": "RollupBox",
            "version": 1,
            "organization": "12340000-0000-4000-8000-000000000000",
            "collector": "shop",
            "frequency_ms": 0,
            "target_frequency_ms": 10_000,
            "segments": ["56780000-0000-4000-8000-000000000000"],
        },
    ),
]


@pytest.mark.parametrize(("message", "wire"), GOLDEN, ids=lambda value: type(value).__name__)
def test_the_wire_forms_of_tending_are_these(message: Message, wire: dict[str, Any]) -> None:
    assert orjson.loads(encode(message)) == wire
    assert decode(orjson.dumps(wire)) == message


def with_source(**changes: object) -> dict[str, Any]:
    return WIRE | {"source": WIRE["source"] | changes}


@pytest.mark.parametrize(
    ("wire", "reason"),
    [
        (b"", "not JSON"),
        (b'{"type": "ObjectArrived"', "not JSON"),
        (b"\xff\xfe", "not JSON"),
        ([], "message is list, not an object"),
        (None, "message is null, not an object"),
        ({}, "unknown message type None: known types are ObjectArrived, IngestBox"),
        (WIRE | {"type": "Surprise"}, "unknown message type 'Surprise'"),
        (WIRE | {"type": ["ObjectArrived"]}, "unknown message type"),
        (WIRE | {"version": 2}, "ObjectArrived has version 2, this reader knows only version 1"),
        (WIRE | {"version": True}, "ObjectArrived has version True"),
        (WIRE | {"version": None}, "ObjectArrived has version None"),
        (WIRE | {"priority": 1}, "ObjectArrived has an unknown field 'priority'"),
        ({k: v for k, v in WIRE.items() if k != "signal"}, "ObjectArrived lacks the field signal"),
        (WIRE | {"collector": 7}, "ObjectArrived.collector is int, not str"),
        (WIRE | {"organization": "nobody"}, "ObjectArrived.organization is 'nobody', not a UUID"),
        (WIRE | {"organization": ORGANIZATION.hex}, "not the standard form of a UUID"),
        (WIRE | {"organization": None}, "ObjectArrived.organization is null, not str"),
        (WIRE | {"source": "x"}, "ObjectArrived.source is str, not dict"),
        (with_source(size=True), "ObjectArrived.source.size is bool, not int"),
        (with_source(size=1.0), "ObjectArrived.source.size is float, not int"),
        (with_source(size=-1), "ObjectArrived.source: a size cannot be negative"),
        (with_source(etag=""), "needs bucket, key and etag"),
        (with_source(owner="me"), "ObjectArrived.source has an unknown field 'owner'"),
        (with_source(**{"k" * 500: 1}), r"unknown field 'k{79}\.\.\.$"),
        (
            {"type": "IngestBox", "version": 1, "organization": str(ORGANIZATION), "collector": "c", "signal": "logs"}
            | {"sources": [WIRE["source"], 3]},
            r"IngestBox.sources\[1\] is int, not dict",
        ),
        (
            {"type": "RollupBox", "version": 1, "organization": str(ORGANIZATION), "collector": "c"}
            | {"frequency_ms": 0, "target_frequency_ms": 10000, "segments": "all"},
            r"RollupBox.segments is str, not list",
        ),
        (GOLDEN[0][1] | {"version": 1}, "SegmentsCommitted has version 1, this reader knows only version 2"),
        (
            GOLDEN[0][1] | {"segments": [str(SEGMENT)]},
            r"SegmentsCommitted.segments\[0\] is str, not dict",
        ),
        (
            GOLDEN[0][1] | {"segments": [{"id": str(SEGMENT), "start_ns": 0, "bytes": 0}]},
            r"SegmentsCommitted.segments\[0\]: a segment has bytes: 0",
        ),
    ],
)
def test_what_is_not_understood_is_corrupt_with_the_reason(wire: object, reason: str) -> None:
    payload = wire if isinstance(wire, bytes) else orjson.dumps(wire)
    with pytest.raises(Corrupt, match=reason):
        decode(payload)


@given(st.binary(max_size=200))
def test_any_bytes_are_a_message_or_corrupt(payload: bytes) -> None:
    with pytest.raises(Corrupt):
        decode(payload)


def test_a_message_has_a_largest_size() -> None:
    others = len(encode(ObjectArrived(ORGANIZATION, "", "logs", SOURCE)))
    largest = ObjectArrived(ORGANIZATION, "c" * (topics.MAX_BYTES - others), "logs", SOURCE)
    assert len(encode(largest)) == topics.MAX_BYTES
    assert decode(encode(largest)) == largest
    with pytest.raises(Corrupt, match="the limit is 16777216"):
        encode(replace(largest, collector=f"{largest.collector}c"))
    with pytest.raises(Corrupt, match="message has 16777217 bytes, the limit is 16777216"):
        decode(b" " * (topics.MAX_BYTES + 1))


@pytest.mark.parametrize("collector", ["\ud800", "a\udcffb"])
def test_text_that_is_not_unicode_cannot_be_sent(collector: str) -> None:
    with pytest.raises(Corrupt, match="ObjectArrived cannot be written"):
        encode(ObjectArrived(ORGANIZATION, collector, "logs", SOURCE))


def test_topics_are_named() -> None:
    assert topics.arrivals("logs") == "objstore.ingest.logs"
    assert topics.ingest_boxes("metrics") == "segments.metrics.ingest"
    assert topics.compact_candidates("traces") == "boxer.traces.compact"
    assert topics.compact_boxes("logs") == "segments.logs.compact"
    assert topics.ROLLUP_CANDIDATES == "boxer.metrics.rollup"
    assert topics.ROLLUP_BOXES == "segments.metrics.rollup"
