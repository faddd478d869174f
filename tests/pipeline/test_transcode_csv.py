"""CSV to OTLP: cells in their columns, strings unless a field makes more of them; ragged rows refused with the line."""

from __future__ import annotations

import csv
import io

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lakerunner.pipeline.transcode import csv as csv_format
from lakerunner.pipeline.transcode import lines, results
from lakerunner.pipeline.transcode.columns import GUESSED
from lakerunner.pipeline.transcode.formats import TRANSCODERS
from pipeline.transcode_oracle import REQUESTS, SPAN_ID, TRACE_ID, logs_request, reason, same, transcoded

NS = 1_700_000_000_123_456_789


def test_fields_are_read_and_all_other_cells_stay_strings() -> None:
    data = (
        "\ufefftime,Message,severity,TraceID,span_id,app,code,ok,attributes,\r\n"
        f'1700000000.123456789,"a ""b"",\r\nc",error,{TRACE_ID.hex()},{SPAN_ID.hex()},cart,'
        '007,true,"{""n"": 1}",x\r\n'
        "\r\n"
        'soon,,,,,,,,"{""n"": ",\r\n'
    )
    same(
        transcoded("csv", "logs", data.encode()),
        logs_request(
            (
                "cart",
                {
                    "time_unix_nano": NS,
                    "body": 'a "b",\r\nc',
                    "severity_text": "error",
                    "severity_number": 17,
                    "trace_id": TRACE_ID,
                    "span_id": SPAN_ID,
                },
                {"code": "007", "ok": "true", "n": 1, "column_10": "x"},
            ),
            (None, {}, {"time": "soon", "attributes": '{"n": '}),
        ),
    )


def test_json_in_a_cell_is_as_exact_as_in_a_line() -> None:
    found = transcoded("csv", "logs", b'attributes\n"{""a"":1,""a"":36893488147419103232}"\n')
    (one, two) = found.resource_logs[0].scope_logs[0].log_records[0].attributes
    assert (one.key, one.value.int_value) == ("a", 1)
    assert (two.key, two.value.string_value) == ("a", "36893488147419103232")


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"a,b\n1,2\n3\n", "line 3: 1 cell, the header has 2"),
        (b'a,b\n1,"2\n2"\n3,4,5\n', "line 4: 3 cells, the header has 2"),
        (b"a,b\n1\n1,2\n1,2,3\n,,,\n", "line 2: 1 cell, the header has 2; 2 further bad lines"),
        (b'a\nx\n"open\n\n', "line 3: not CSV: unexpected end of data"),
        (b'a\n"x"y\n', "line 2: not CSV: "),
        (b"a\n\xff\n", "line 2: byte 1: not UTF-8"),
        (b"\n\xff\n", "line 2: byte 1: not UTF-8"),
        (b'\n\n"a\n', "line 3: not CSV: unexpected end of data"),
    ],
)
def test_what_is_no_csv_is_named_with_its_line(data: bytes, expected: str) -> None:
    assert reason("csv", "logs", data).startswith(expected)


@pytest.mark.parametrize("data", [b"a,b\n", b"a,b", b"\n\r\n", b"\xef\xbb\xbf\n"])
def test_a_header_alone_and_a_blank_file_hold_no_records(data: bytes) -> None:
    assert [len(resource.scope_logs) for resource in transcoded("csv", "logs", data).resource_logs] == [0]


BROKEN = [
    # what follows a header of two columns, the second cells that are kept, (line, reason) of the rejects
    (b"1,a\n2\n3,c\n", "ac", [(3, "1 cell, the header has 2")]),
    # A quote that is never closed swallows its own line only, though the reader sees its trouble much later.
    (b'1,a\n2,"b\n3,c\n4,d\n', "acd", [(3, "not CSV: unexpected end of data")]),
    (b'1,"b\n2,c\n3,"d"\n4,e\n', "cde", [(2, "not CSV: ',' expected after '\"'")]),
    (b'1,"b\n2,c\n3,","\n4,e\n5,f\n', "c,ef", [(2, "not CSV: unexpected end of data")]),
    (b'1,"b\n2,c\n3,d",x\n4,e\n', "ce", [(2, "3 cells"), (4, "3 cells")]),
    # Both lines of one row: the quote is sound, so it is rejected as a whole.
    (b'1,a\n2,"\xff\nb"\n3,c\n', "ac", [(3, "byte 4: not UTF-8")]),
    (b"1,a\n\xff,b\n\n3,c\n", "ac", [(3, "byte 1: not UTF-8")]),
]


@pytest.mark.parametrize(("rows", "kept", "rejected"), BROKEN)
def test_reading_goes_on_behind_a_bad_row(rows: bytes, kept: str, rejected: list[tuple[int, str]]) -> None:
    data = b"\xef\xbb\xbfid,msg\n" + rows
    made = TRANSCODERS["csv"]("logs", memoryview(data), GUESSED)
    (resource,) = REQUESTS["logs"].FromString(made.data).resource_logs
    assert [record.body.string_value for record in resource.scope_logs[0].log_records] == list(kept)
    found = made.findings.rejects
    assert (found.count, found.lines) == (len(rejected), len(rejected) + len(kept))
    for reject, (line, why) in zip(found.first, rejected, strict=True):
        assert (reject.line, reject.reason.startswith(why)) == (line, True), reject
        first = data.splitlines()[line - 1]
        assert (data[reject.offset :].splitlines()[0], reject.excerpt) == (first, first.decode(errors="replace"))


def test_the_search_for_the_end_of_a_quote_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(csv_format, "MAX_LINE", 10_000)
    # Every line opens a quote, and closes one that was open and opens another.
    assert reason("csv", "logs", b"id,msg\n" + b'a","\n' * 3_000).endswith("too many quotes that are never closed")


def test_a_line_that_is_too_long_is_rejected_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lines, "MAX_LINE", 3 << 20)
    data = b"id,msg\n1,a\n2," + b"x" * (3 << 20) + b"\n3,c\n"
    found = TRANSCODERS["csv"]("logs", memoryview(data), GUESSED).findings.rejects
    assert [(one.line, one.offset, one.reason, len(one.excerpt)) for one in found.first] == [
        (3, 11, "longer than 64 MB", 200)
    ]
    assert found.lines == 3


def test_columns_of_equal_names_are_both_kept() -> None:
    found = transcoded("csv", "logs", b"a,a,msg,msg\n1,2,x,y\n")
    record = found.resource_logs[0].scope_logs[0].log_records[0]
    assert record.body.string_value == "x"
    assert [(pair.key, pair.value.string_value) for pair in record.attributes] == [("a", "1"), ("a", "2"), ("msg", "y")]


def test_a_long_header_cannot_unfold_without_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(results, "MAX_BYTES", 4 << 20)
    data = b"k" * 100_000 + b"\n" + b"1\n" * 100_000
    assert reason("csv", "logs", data) == "the file expands to more than 4 MB of OTLP: send smaller files"


def test_a_cell_may_be_long_but_not_longer_than_a_line() -> None:
    longest = "x" * 200_000  # past the csv module's own limit
    same(transcoded("csv", "logs", f"msg\n{longest}\n".encode()), logs_request((None, {"body": longest}, {})))


CELL = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=12)


@settings(max_examples=100, deadline=None)
@given(st.integers(1, 4).flatmap(lambda width: st.lists(st.lists(CELL, min_size=width, max_size=width), min_size=1)))
def test_any_cells_come_back_equal(rows: list[list[str]]) -> None:
    names = [f"x-{index}" for index in range(len(rows[0]))]
    out = io.StringIO()
    csv.writer(out, quoting=csv.QUOTE_ALL, lineterminator="\n").writerows([names, *rows])
    wanted = logs_request(*((None, {}, dict(zip(names, row, strict=True))) for row in rows))
    same(transcoded("csv", "logs", out.getvalue().encode()), wanted)


@pytest.mark.parametrize(
    ("name", "data", "noted"),
    [
        ("csv", "time;msg;code\n1700000000;a, b;7\n", False),
        ("csv", "time\tmsg\tcode\n1700000000\ta, b\t7\n", False),
        ("csv", "time|msg|code\n1700000000|a, b|7\n", False),
        ("csv", '\n"time";"msg";"code"\n1700000000;"a, b";7\n', False),
        ("csv", '"ti,m,e";time;msg;code\n;1700000000;"a, b";7\n', False),
        ("csv", 'time,msg,code,"x;y;z;z;z"\n1700000000,"a, b",7,\n', False),
        ("csv", 'time,msg,code,x;y\n1700000000,"a, b",7,\n', True),
        ("tsv", "time\tmsg\tcode\n1700000000\ta, b\t7\n", False),
        ("tsv", "time\tmsg\tcode\tx,y,z,z,z\n1700000000\ta, b\t7\t\n", True),
    ],
)
def test_the_header_says_what_separates_cells(name: str, data: str, noted: bool) -> None:
    made = TRANSCODERS[name]("logs", memoryview(data.encode()), GUESSED)
    record = REQUESTS["logs"].FromString(made.require_complete()).resource_logs[0].scope_logs[0].log_records[0]
    assert (record.time_unix_nano, record.body.string_value) == (1_700_000_000 * 10**9, "a, b")
    assert [(pair.key, pair.value.string_value) for pair in record.attributes] == [("code", "7")]
    assert ("delimiter" in [note.kind for note in made.findings.notes]) == noted


def test_a_tsv_file_without_tabs_is_one_column_and_noted() -> None:
    made = TRANSCODERS["tsv"]("logs", memoryview(b"a,b\n1,2\n"), GUESSED)
    same(REQUESTS["logs"].FromString(made.require_complete()), logs_request((None, {}, {"a,b": "1,2"})))
    (note,) = (note for note in made.findings.notes if note.kind == "delimiter")
    assert (note.line, note.text) == (
        1,
        "cells are separated by tab; the header has tab 0 times, comma 1 time, semicolon 0 times, pipe 0 times",
    )
