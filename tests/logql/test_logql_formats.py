"""line_format and label_format: the shared tables, and lines, labels and errors of our own."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from lakerunner.logql.stages.formats import (
    FORMAT_FUNCTIONS,
    compile_label_format,
    compile_line_format,
    names_of_label_format,
    names_of_line_format,
)
from lakerunner.logql.stages.line_labels import LineLabels
from lakerunner.logql.stages.stage_run import StageContext, StageRun
from lakerunner.logql.text.parse import parse_logql
from lakerunner.logql.text.syntax import LabelFormat, LineFormat, Pipeline, Stage
from lakerunner.model.errors import TooLarge, UserError

TABLES = Path(__file__).resolve().parents[3] / "shared" / "conformance" / "logql" / "tables"
# Go's test of label_format gives every row this line and time, which the table does not repeat.
LABEL_LINE, LABEL_TIME = "test line", 1_661_518_453_244_672_570
NOW_NS = 1_650_000_000_000_000_000
ERROR, DETAILS = "__error__", "__error_details__"


def rows(name: str) -> list[Any]:
    path = TABLES / f"{name}.jsonl"
    if not path.is_file():
        return []
    lines = path.read_bytes().decode("utf-8", "surrogateescape").split("\n")
    found = [json.loads(line) for line in lines if line.strip()]
    return [row for row in found if row["stage"].startswith(("line_format", "label_format"))]


def stage_of(text: str) -> Stage:
    query = parse_logql(f'{{app="a"}} | {text}')
    assert isinstance(query, Pipeline)
    (stage,) = query.stages
    return stage


def compiled(text: str) -> StageRun:
    stage, context = stage_of(text), StageContext(now_ns=NOW_NS)
    if isinstance(stage, LineFormat):
        return compile_line_format(stage, context)
    assert isinstance(stage, LabelFormat)
    return compile_label_format(stage, context)


def after(
    text: str, stream: Mapping[str, str], line: str = "", metadata: Mapping[str, str] | None = None
) -> tuple[str | None, dict[str, str]]:
    """Return the line and its labels behind a stage."""
    labels = LineLabels(stream, metadata or {})
    return compiled(text)(1_600_000_000_000_000_000, line, labels), labels.all()


def test_the_tables_are_there() -> None:
    if not TABLES.is_dir():
        pytest.skip("the shared tables are not there: ../shared/conformance is absent")
    assert len(rows("formats")) >= 34


@pytest.mark.parametrize("row", rows("formats") + rows("stages"), ids=lambda row: row["name"])
def test_tables(row: Any) -> None:
    is_label = row["stage"].startswith("label_format")
    line, time_ns = (LABEL_LINE, LABEL_TIME) if is_label and "ts" not in row else (row["line"], row.get("ts", 0))
    labels = LineLabels(row["stream"], row.get("metadata", {}))
    made = compiled(row["stage"])(time_ns, line, labels)
    assert labels.all() == row["labels"]
    assert made == row.get("want", line)


# ---- line_format


def test_a_line_is_made_of_labels_and_of_itself() -> None:
    made, labels = after('line_format "{{.b | upper}}: {{__line__}}"', {"b": "x"}, "text", {"m": "y"})
    assert (made, labels) == ("X: text", {"b": "x", "m": "y"})


def test_a_label_that_is_missing_is_empty() -> None:
    assert after('line_format "[{{.none}}]"', {})[0] == "[]"
    assert after('line_format "{{.none}}"', {})[0] == ""


def test_time_of_line_and_of_query() -> None:
    made, _ = after('line_format "{{__timestamp__ | date `2006`}} {{now | date `2006`}}"', {})
    assert made == "2020 2022"


@pytest.mark.parametrize(
    ("template", "line"),
    [
        ("{{bytes .size}}", "1.5e+06"),
        ("{{.size | bytes | int}}", "1500000"),
        ("{{duration .took}} {{duration_seconds `-1h`}}", "90.25 -3600"),
    ],
)
def test_sizes_and_durations(template: str, line: str) -> None:
    assert after(f'line_format "{template}"', {"size": "1.5 MB", "took": "1m30.25s"})[0] == line


def test_a_template_that_fails_keeps_the_line_and_marks_it() -> None:
    made, labels = after('line_format "a{{bytes .b}}"', {"b": "x"}, "text")
    place = 'template: line:1:3: executing "line" at <bytes .b>'
    words = 'error calling bytes: strconv.ParseFloat: parsing "": invalid syntax'
    assert (made, labels) == ("text", {"b": "x", ERROR: "TemplateFormatErr", DETAILS: f"{place}: {words}"})


def test_templates_see_errors_of_stages_before_them() -> None:
    labels = LineLabels({"a": "1"}, {})
    labels.error = "JSONParserErr"
    assert compiled('line_format "{{.__error__}}!"')(0, "", labels) == "JSONParserErr!"
    assert compiled('line_format "{{.__error__}}"')(0, "", labels) == ""  # a field alone is a label, as in Loki


def test_a_template_that_loops_is_refused() -> None:
    with pytest.raises(TooLarge, match="steps"):
        after('line_format "{{range 1000}}{{range 1000}}{{range 1000}}x{{end}}{{end}}{{end}}"', {})


def test_there_are_all_functions() -> None:
    assert len(FORMAT_FUNCTIONS) == 67
    assert {"bytes", "duration", "duration_seconds"} <= set(FORMAT_FUNCTIONS)


# ---- label_format


def test_rename_makes_a_parsed_label_and_removes_its_source() -> None:
    labels = LineLabels({"a": "1", "keep": "x"}, {"m": "2"})
    compiled("label_format b=a, n=m, c=none")(0, "", labels)
    assert labels.by_kind() == ({"keep": "x"}, {}, {"b": "1", "n": "2"})


def test_renames_follow_each_other() -> None:
    assert after("label_format b=a, c=b", {"a": "1", "b": "2"})[1] == {"c": "1"}
    assert after("label_format a=a", {"a": "1"})[1] == {}  # set, then removed


def test_templates_of_a_stage_see_the_labels_before_it() -> None:
    stage = 'label_format a="{{.b}}", b="{{.a}}", c="{{.a}}"'
    assert after(stage, {"a": "1", "b": "2"})[1] == {"a": "2", "b": "1", "c": "1"}


def test_a_template_behind_a_rename_sees_the_new_name() -> None:
    assert after('label_format b=a, c="{{.a}}{{.b}}"', {"a": "1"})[1] == {"b": "1", "c": "1"}


def test_what_fails_leaves_its_label_and_goes_on() -> None:
    _, labels = after('label_format a="{{div 1 0}}", b="{{.a}}"', {"a": "1"})
    details = (
        'template: label:1:2: executing "label" at <div 1 0>: error calling div: runtime error: integer divide by zero'
    )
    assert labels == {"a": "1", "b": "1", ERROR: "TemplateFormatErr", DETAILS: details}


def test_a_template_replaces_metadata() -> None:
    labels = LineLabels({}, {"m": "1"})
    compiled('label_format m="{{.m}}x"')(0, "", labels)
    assert labels.by_kind() == ({}, {}, {"m": "1x"})


# ---- what is wrong, what is read


@pytest.mark.parametrize(
    ("stage", "words"),
    [
        ('line_format "{{.a"', "invalid line template: template: line:1: unclosed action"),
        ('line_format "{{nosuch}}"', 'invalid line template: template: line:1: function "nosuch" not defined'),
        ('label_format a="{{if}}"', "invalid template for label 'a': template: label:1: missing value for if"),
    ],
)
def test_templates_that_are_wrong(stage: str, words: str) -> None:
    with pytest.raises(UserError) as raised:
        compiled(stage)
    assert raised.value.message == words


def test_names_that_stages_read() -> None:
    line = stage_of('line_format "{{.a}} {{if .b | hasPrefix `x`}}{{.c}}{{end}} {{.a}}"')
    assert isinstance(line, LineFormat)
    assert names_of_line_format(line) == ("a", "b", "c")
    label = stage_of('label_format x=a, y="{{.b}}{{.a}}"')
    assert isinstance(label, LabelFormat)
    assert names_of_label_format(label) == ("a", "b")
