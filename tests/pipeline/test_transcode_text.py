"""Plain text to OTLP logs: every line in one record, exactly as written. The formats themselves are golden files
(test_inputs_golden.py)."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from lakerunner.pipeline.transcode import lines, plain_text
from lakerunner.pipeline.transcode.columns import GUESSED, Columns
from lakerunner.pipeline.transcode.formats import TRANSCODERS
from pipeline.transcode_oracle import REQUESTS, logs_request, reason, same

NOON = 1_794_916_800 * 10**9  # 2026-11-17T12:00:00Z
STAMP = "2026-11-17T12:00:00Z"


def read(data: bytes, columns: Columns = GUESSED) -> tuple[Any, Any]:
    """(request, findings)"""
    made = TRANSCODERS["text"]("logs", memoryview(data), columns.near(NOON))
    return REQUESTS["logs"].FromString(made.data), made.findings


def records(request: Any) -> list[Any]:
    found = [scope_logs for resource_logs in request.resource_logs for scope_logs in resource_logs.scope_logs]
    return [record for scope_logs in found for record in scope_logs.log_records]


def bodies(data: bytes) -> list[str]:
    return [record.body.string_value for record in records(read(data)[0])]


def written(record: Any) -> bytes:
    """The lines of a record as they came in."""
    for pair in record.attributes:
        if pair.key == "lakerunner.body":
            return bytes(pair.value.bytes_value)
    text: str = record.body.string_value
    return text.encode()


LINE = st.one_of(
    st.binary(max_size=30).map(lambda data: data.replace(b"\n", b"").replace(b"{", b"(")),  # JSON is read as such
    st.sampled_from(
        [
            *(
                b"",
                b" ",
                b"\t",
                b"\r",
                b"  indented",
                b"\tat x.Y(Z.java:1)",
                b"}",
                b"Caused by: x",
                b"goroutine 1 [x]:",
            ),
            *(b"Traceback (most recent call last):", b"ValueError: x", b"main.main()", b"java.lang.Error: x"),
            *(b"2026-11-17T12:00:00Z INFO a", b"Nov 17 12:00:00 host app[1]: a", b"I1117 12:00:00.1    1 a.go:1] b"),
            *(
                b"level=info msg=a",
                b"<34>1 - h a 1 m - x",
                b"[17/Nov/2026:12:00:00 +0000]",
                b"ERROR x",
                b"{x}",
                b'{"a"',
            ),
            b'1.1.1.1 - - [17/Nov/2026:12:00:00 +0000] "GET / HTTP/1.1" 200 1',
        ]
    ),
)


@settings(max_examples=300, deadline=None)
@given(st.lists(LINE, max_size=12), st.sampled_from([b"\n", b"\r\n"]))
@example([b"Traceback (most recent call last):", b"", b"x"], b"\n")
@example([b"x", b" y", b"", b" ", b" z"], b"\r\n")
def test_every_line_is_in_exactly_one_record(given_lines: list[bytes], end: bytes) -> None:
    data = end.join(given_lines)
    if data[:2] in (b"\xff\xfe", b"\xfe\xff") or data[:3] == b"\xef\xbb\xbf":
        return  # these have tests of their own
    found, findings = read(data)
    assert findings.rejects.count == 0
    got = Counter(line for record in records(found) for line in written(record).split(b"\n"))
    wanted = Counter(line.removesuffix(b"\r") for line in data.split(b"\n"))
    blank = {line for line in wanted if not line.strip()}
    assert got.items() - {(line, got[line]) for line in blank} == {
        (line, count) for line, count in wanted.items() if line not in blank
    }
    assert all(got[line] <= wanted[line] for line in blank)


@pytest.mark.parametrize(("setting", "limit"), [("MAX_LINES", 3), ("MAX_BYTES", 30)])
def test_a_record_is_joined_within_limits(monkeypatch: pytest.MonkeyPatch, setting: str, limit: int) -> None:
    assert getattr(plain_text, setting) > limit
    monkeypatch.setattr(plain_text, setting, limit)
    found = records(read(f"{STAMP} a\n 1\n 2\n 3\n 4\n 5\n\n\n\n 6\n".encode())[0])
    joined = {
        "MAX_LINES": [f"{STAMP} a\n 1\n 2", " 3\n 4\n 5", " 6"],
        "MAX_BYTES": [f"{STAMP} a\n 1\n 2", " 3\n 4\n 5\n\n\n\n 6"],
    }
    assert [record.body.string_value for record in found] == joined[setting]
    assert {record.time_unix_nano for record in found} == {NOON}


def test_a_line_may_be_huge(monkeypatch: pytest.MonkeyPatch) -> None:
    huge = f"{STAMP} ERROR " + "x=y " * 100_000
    (record,) = records(read(huge.encode())[0])
    assert (record.body.string_value, record.time_unix_nano, record.severity_number) == (huge, NOON, 17)
    pairs = "level=info msg=" + "?" * plain_text.MAX_PARSED  # past what is taken apart
    (record,) = records(read(pairs.encode())[0])
    assert (record.body.string_value, len(record.attributes)) == (pairs, 0)
    monkeypatch.setattr(lines, "MAX_LINE", 1 << 20)
    found, findings = read(b"a\n" + b"x" * (3 << 20) + b"\n b\n")
    assert [record.body.string_value for record in records(found)] == ["a", " b"]
    assert (str(findings.rejects), findings.rejects.first[0].offset) == ("line 2: longer than 1 MB", 2)


@pytest.mark.parametrize(
    "line",
    [
        '1.1.1.1 - - [17/Nov/2026:12:00:00 +0000] "GET ' + "?" * 60_000 + '" 200 1',
        "<34>1 - h a 1 m " + '[a b="c"' * 7_000,
        "a=" + '"\\' * 30_000,
        "a.b" * 20_000,
        "Nov 17 12:00:00 " + "h:" * 30_000,
        "2026-11-17T12:00:00." + "1" * 60_000 + "x",
    ],
)
def test_a_hostile_line_is_read_in_time_linear_to_its_length(line: str) -> None:
    assert bodies(line.encode()) == [line]  # seconds for one of these would be minutes with a quadratic pattern


def test_the_format_is_that_of_the_first_lines() -> None:
    logfmt = b"a=1 b=2"
    first = f"{STAMP} plain\n".encode() * plain_text.SAMPLE_LINES
    assert len(records(read(logfmt + b"\n" + first)[0])[0].attributes) == 2
    assert len(records(read(first + logfmt)[0])[-1].attributes) == 0


def test_a_mapping_file_is_heeded() -> None:
    found, _ = read(
        b"when=1794916800 msg=paid by=cart", Columns({"timestamp": "when", "message": "msg", "service": "by"})
    )
    fields = {"time_unix_nano": NOON, "body": "paid"}
    same(found, logs_request(("cart", fields, {"message": "when=1794916800 msg=paid by=cart"})))


def test_utf16_of_either_order_and_a_bom_are_decoded() -> None:
    text = f"{STAMP} INFO żółw 🐢\r\n\tat x\r\n"
    wanted = [f"{STAMP} INFO żółw 🐢\n\tat x"]
    for data in (
        text.encode("utf-8-sig"),
        b"\xff\xfe" + text.encode("utf-16-le"),
        b"\xfe\xff" + text.encode("utf-16-be"),
    ):
        assert bodies(data) == wanted
    found, findings = read(b"\xff\xfe" + "a\n".encode("utf-16-le") + b"\x00\xd8")
    assert [record.body.string_value for record in records(found)] == ["a", "\ufffd"]
    assert "not UTF-16" in [note.kind for note in findings.notes]


@pytest.mark.parametrize("signal", ["metrics", "traces"])
def test_other_signals_are_not_text(signal: str) -> None:
    assert reason("text", signal, b"x").startswith(f"plain text files contain logs, not {signal}: ")
