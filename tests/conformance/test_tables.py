"""Tables: which files are of which kind, and that a wrong expectation is found in each kind."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from conformance.notation import ScriptError
from conformance.run import main, scripts
from conformance.tables import TABLES, TableRow, is_table, kind_of_table, problem_of_row, read_table

RIGHT: dict[str, list[dict[str, Any]]] = {
    "parse": [
        {"query": '{a="b"}', "valid": True},
        {"query": "{", "valid": False},
        {
            "query": "unk",
            "valid": False,
            "error": "parse error at line 1, col 1: syntax error: unexpected IDENTIFIER",
        },
    ],
    "stringer": [{"query": '{a="b"}|="x"', "string": '{a="b"} |= "x"'}],
    "format_query": [{"query": '{a="b",c="ddddddd"}|="x"', "pretty": '{a="b", c="ddddddd"}\n  |= "x"'}],
    "line_filters": [
        {"query": '{a="b"} |= "x"', "lines": [{"line": "xy", "kept": True}, {"line": "y", "kept": False}]}
    ],
    "stages": [
        {"stage": "json", "line": '{"b":1}', "stream": {"a": "x"}, "labels": {"a": "x", "b": "1"}},
        {"stage": "logfmt --strict", "line": "b=1", "stream": {"a": "x"}, "labels": {}},
        {"stage": 'regexp "("', "invalid": True},
    ],
    "formats": [
        {"stage": 'line_format "{{.a}}"', "line": "", "ts": 0, "stream": {"a": "x"}, "want": "x", "labels": {"a": "x"}},
        {"stage": "label_format b=a", "line": "", "stream": {"a": "x"}, "labels": {"b": "x"}},
    ],
    "patterns": [
        {"pattern": "x <a> <b>", "line": "x 1 2", "captures": ["1", "2"], "matches": True},
        {"pattern": "<_>", "error": "Name(text='ErrNoCapture')"},
    ],
    "ip": [{"ip": "10.0.0.0/8", "lines": ["at 10.1.1.1", "at 11.1.1.1"], "kept_indexes": [0], "fails": False}],
    "levels": [
        {"log": "an error: x", "expected": "error"},
        {"name": "warn upper bound", "expectedLogLevel": "warn"},
        {
            "entry": {"Line": "x", "StructuredMetadata": [{"Name": "level", "Value": "ERR"}]},
            "expectedLogLevel": "error",
        },
    ],
}
WRONG: dict[str, dict[str, Any]] = {
    "parse": {"query": "{", "valid": False, "error": "other words"},
    "stringer": {"query": '{a="b"}', "string": '{a="c"}'},
    "format_query": {"query": '{a="b"}', "pretty": '{a="b"}\n'},
    "line_filters": {"query": '{a="b"} |= "x"', "lines": [{"line": "x", "kept": False}]},
    "stages": {"stage": "json", "line": '{"b":1}', "stream": {}, "labels": {"b": "2"}},
    "formats": {"stage": 'line_format "x"', "line": "", "ts": 0, "stream": {}, "want": "y", "labels": {}},
    "patterns": {"pattern": "x <a>", "line": "x 1", "captures": ["1"], "matches": False},
    "ip": {"ip": "10.0.0.0/8", "lines": None, "kept_indexes": None, "fails": True},
    "levels": {"word": "warn", "level": "error"},
}


@pytest.mark.parametrize("kind", TABLES)
def test_every_kind_tells_right_from_wrong(kind: str) -> None:
    def problem(fields: dict[str, Any]) -> str | None:
        return problem_of_row(TableRow(Path(f"{kind}.jsonl"), 1, "", fields))

    assert [problem(row) for row in RIGHT[kind]] == [None] * len(RIGHT[kind])
    assert problem(WRONG[kind]) is not None


def test_the_kind_is_the_end_of_the_name() -> None:
    names = ("parse", "more_parse", "query.ip", "my-format_query", "x_line_filters")
    assert [kind_of_table(Path(f"{name}.jsonl")) for name in names] == [
        "parse", "parse", "ip", "format_query", "line_filters",
    ]  # fmt: skip
    for name in ("skip", "filters", "parsed", "tip"):
        assert not is_table(Path(f"{name}.jsonl"))
        with pytest.raises(ScriptError, match="a table of no kind we have"):
            read_table(Path(f"{name}.jsonl"))


def test_rows_are_read_with_bytes_that_are_not_utf_8(tmp_path: Path) -> None:
    path = tmp_path / "stages.jsonl"
    path.write_bytes(b'{"stage": "json", "line": "\xff"}\n\n{"stage": "logfmt"}\n')
    first, second = read_table(path)
    assert (first.line, first.query, first.fields["line"]) == (1, "json", "\udcff")
    assert second.place == "stages.jsonl:3"
    path.write_text("{}\nnot JSON\n")
    with pytest.raises(ScriptError, match=r"stages\.jsonl:2: "):
        read_table(path)


def test_tables_and_scripts_of_a_folder_run_together(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "more_ip.jsonl").write_text("\n".join(map(json.dumps, [*RIGHT["ip"], WRONG["ip"]])))
    (tmp_path / "other.jsonl").write_text("{}\n")
    (tmp_path / "one.logqltest").write_text(
        'load\n  {a="b"} "x" @ 10s [repeat every 10s for 3]\neval instant at 20s count_over_time({a="b"}[15s])\n'
        '  {a="b"} 2\neval select from 0s to 20s backward {a="b"}\n  {a="b"} "x" @ 10s\n'
    )
    assert [path.name for path in scripts([str(tmp_path)])] == ["more_ip.jsonl", "one.logqltest"]
    assert main([str(tmp_path)]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines[:2] == [f"{'more_ip.jsonl':32} 1 passed, 1 failed", f"{'one.logqltest':32} 2 passed, 0 failed"]
    assert lines[-1] == "3 passed, 1 failed"
    assert main([str(tmp_path / "other.jsonl")]) == 2
