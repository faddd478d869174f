"""Traces that are refused, with the place and the reason; fields with tags of two bytes."""

from __future__ import annotations

import pytest

from lakerunner.model.signal import TRACES
from lakerunner.pipeline.read.wire import STRING, Field, grammar, varint
from pipeline.otlp_oracle import actual, make, raw_of


def field(number: int, payload: bytes) -> bytes:
    return varint(number << 3 | 2) + varint(len(payload)) + payload


def refusal(span: bytes) -> str:
    made, files = make(raw_of(field(1, field(2, field(2, span)))), spec=TRACES)
    assert files == {}
    ((_, reason),) = made.failed
    return reason


def test_flags_are_read_from_their_tag_of_two_bytes_and_refused_with_another_type() -> None:
    prefix = field(5, b"name")
    assert "byte 12: Span.flags has wire type 0, not 5" in refusal(prefix + varint(16 << 3) + b"\x01")
    assert "byte 12: Span.flags has wire type 2, not 5" in refusal(prefix + field(16, b"abcd"))
    assert "byte 12: Span ends in the middle of a field" in refusal(prefix + varint(16 << 3 | 5) + b"\x01")
    long_tag = b"\x85\x81\x00" + bytes(4)
    assert "byte 12: Span.flags has wire type 5 in a tag of more bytes than it needs" in refusal(prefix + long_tag)
    long_name = b"\xaa\x00" + b"\x01x"
    assert "byte 12: Span.name has wire type 2 in a tag of more bytes than it needs" in refusal(prefix + long_name)
    unknown = field(17, b"new") + field(31, b"new") + field(32, b"new") + varint(16 << 3 | 5) + b"\x07\xff\xff\xff"
    made, files = make(raw_of(field(1, field(2, field(2, prefix + unknown)))), spec=TRACES)
    assert [row["flags"] for row in actual(made.segments, files)] == [0xFFFFFF07]


def test_only_plain_numbers_may_have_a_tag_of_two_bytes() -> None:
    with pytest.raises(ValueError, match=r"M\.text has a tag of two bytes"):
        grammar({"M": {16: Field("text", STRING)}})


def test_a_span_of_too_many_small_events_is_refused() -> None:
    reason = refusal(field(11, b"") * 3_000_000)
    assert reason.startswith("a Span of 6000000 bytes needs 446 MB of memory for 3000003 parts")
    assert reason.endswith("send smaller ones")


def test_trouble_inside_events_links_and_status_is_named_with_its_place() -> None:
    assert "byte 8: Event.time_unix_nano has wire type 0, not 1" in refusal(field(11, b"\x08\x01"))
    assert "byte 8: Link.flags has wire type 2, not 5" in refusal(field(13, field(6, b"")))
    assert "byte 8: Status.code has wire type 2, not 0" in refusal(field(15, field(3, b"")))
    assert "byte 10: Link.attributes has a field that is longer" in refusal(field(13, field(4, b"\x0a\x05")))
