"""The mapping file: columns by name where guessing does not do, and errors that name file, section and key."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest

from lakerunner.model.errors import UserError
from lakerunner.pipeline.transcode.columns import GUESSED, Columns, parse_mappings, read_mapping_file
from pipeline.transcode_oracle import logs_request, same, transcoded

TEXT = """
["otel-raw/acme/".logs]
timestamp = "when"
timestamp_unit = "ms"
message = "text"

["otel-raw/acme/edge/".logs]
message = "line"

["otel-raw/acme/edge/".traces]
duration = "took"
duration_unit = "us"
"""


def test_the_longest_prefix_with_a_section_for_the_signal_wins() -> None:
    mappings = pickle.loads(pickle.dumps(parse_mappings(TEXT, "m.toml")))
    whole = Columns({"timestamp": "when", "message": "text"}, {"timestamp": "ms"})
    assert mappings.columns_of("otel-raw/acme/core/x.jsonl", "logs") == whole
    assert mappings.columns_of("otel-raw/acme/edge/x.jsonl", "logs") == Columns({"message": "line"}, {})
    assert mappings.columns_of("otel-raw/acme/edge/x.jsonl", "traces") == Columns(
        {"duration": "took"}, {"duration": "us"}
    )
    assert mappings.columns_of("otel-raw/acme/core/x.jsonl", "traces") is GUESSED
    assert mappings.columns_of("otel-raw/other/x.jsonl", "logs") is GUESSED


def test_a_mapped_column_is_the_field_and_the_guess_is_not() -> None:
    columns = parse_mappings(TEXT, "m.toml").columns_of("otel-raw/acme/core/x", "logs")
    data = b'{"when":1700000000123,"text":"a","timestamp":5,"message":"b","level":"info"}\n{"message":"c"}'
    wanted = logs_request(
        (
            None,
            {
                "time_unix_nano": 1_700_000_000_123_000_000,
                "body": "a",
                "severity_text": "info",
                "severity_number": 9,
            },
            {"timestamp": 5, "message": "b"},
        ),
        (None, {}, {"message": "c"}),
    )
    same(transcoded("jsonl", "logs", data, columns), wanted)


def test_a_mapping_takes_a_column_that_would_be_guessed_as_another() -> None:
    columns = Columns({"service": "message"}, {})
    same(transcoded("csv", "logs", b"message,msg\na,b\n", columns), logs_request(("a", {"body": "b"}, {})))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("= 5", "mapping file m.toml is not TOML: "),
        ("a = 5", "mapping file m.toml, a: write a section as "),
        ("[logs]\nmessage = 'x'", "mapping file m.toml, logs: write a section as "),
        (
            "['p/'.logz]\nmessage = 'x'",
            "mapping file m.toml, section ['p/'.logz]: a section must end in one of logs, metrics",
        ),
        ("['p/'.logs]\nmesage = 'x'", "section ['p/'.logs]: unknown key mesage: did you mean message?"),
        ("['p/'.logs]\nqqq = 'x'", "section ['p/'.logs]: unknown key qqq: known keys: timestamp, "),
        ("['p/'.logs]\nmessage_unit = 'x'", "section ['p/'.logs]: unknown key message_unit"),
        ("['p/'.logs]\nmessage = 5", "section ['p/'.logs]: message = 5 is not text"),
        ("['p/'.logs]\nmessage = ''", "section ['p/'.logs]: message = '' is not text"),
        ("['p/'.logs]\ntimestamp_unit = 'h'", "timestamp_unit = 'h' is not one of s, ms, us, ns"),
        ("['p/'.logs]\nmessage = 'a'\nlevel = 'a'", "section ['p/'.logs]: message and level name the same column 'a'"),
    ],
)
def test_what_is_wrong_is_named(text: str, expected: str) -> None:
    with pytest.raises(UserError) as caught:
        parse_mappings(text, "m.toml")
    assert expected in str(caught.value)


def test_the_file_is_read_from_its_path(tmp_path: Path) -> None:
    path = tmp_path / "m.toml"
    path.write_text(TEXT)
    assert len(read_mapping_file(str(path)).sections) == 3
    assert read_mapping_file("").sections == ()
    path.write_bytes(b"# \xff")
    with pytest.raises(UserError, match="is not UTF-8: byte 2"):
        read_mapping_file(str(path))
    with pytest.raises(UserError, match=r"cannot read mapping file .*: No such file"):
        read_mapping_file(str(tmp_path / "absent"))
