"""The kernels of parsers set the labels that the row stages set; rows that they leave to them are few."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakerunner.logql.columns.extracted import Extracted
from lakerunner.logql.columns.json_keys import extract_json
from lakerunner.logql.columns.logfmt_keys import extract_logfmt
from lakerunner.logql.columns.pattern_parts import extract_pattern
from lakerunner.logql.stages.hints import ParserHints
from lakerunner.logql.stages.json_parser import compile_json
from lakerunner.logql.stages.line_labels import LineLabels
from lakerunner.logql.stages.logfmt import compile_logfmt
from lakerunner.logql.stages.pattern import compile_pattern
from lakerunner.logql.stages.stage_run import StageContext, StageRun
from lakerunner.logql.text.syntax import Json, Logfmt, Pattern

_NAMES = ("a", "b", "a_b", "a_b_c", "_1", "_1_a", "a_extracted", "b_", "__error__", "aa")
_WANTED = st.lists(st.sampled_from(_NAMES), min_size=1, max_size=4)
_KEYS = st.sampled_from(
    (
        "a",
        "b",
        "c",
        "aa",
        "a_b",
        "a.b",
        "a-b",
        " a ",
        "b_c",
        "1",
        "1a",
        "",
        " ",
        "b\t",
        "\\u0061",
        "\\",
        "ä",
        "a_",
        "\x7f",
    )
)
_ESCAPES = ("\\n", '\\"', "\\\\", "\\/", "\\'", "\\u0041", "\\u00e4", "\\u20AC", "\\ufffd", "\\ud83d\\ude00", "\\ud83d")
_PIECES = st.sampled_from(
    (*_ESCAPES, "\\x", "\\u12", "\\u00zz", "\\", "x", "é", "€", "😀", "\ufffd", " ", "{", "}", "]", "")
)
_TEXTS = st.lists(_PIECES, max_size=4).map("".join)
_NUMBERS = st.sampled_from(("0", "-1.5e3", "12ms", "1{", '1"', "-", "1:2", "5]"))
_WORDS = st.sampled_from(("true", "false", "null", "nul", "tru", "True", "", "x"))
_ARRAYS = st.sampled_from(("[]", "[1,2]", '["]", {"a": 1}]', "[ } ]", "[ { ]", "[", "[[1], [2]]", "[{}}]"))
_SCALARS = st.one_of(
    _TEXTS.map(lambda text: f'"{text}"'), _NUMBERS, _WORDS, _ARRAYS, st.sampled_from(('"x"', "7", "true", '"unclosed'))
)
_BLANKS = st.sampled_from(("", "", " ", "\n", "\t", "\x0b"))


@st.composite
def _objects(draw: st.DrawFn, depth: int = 3) -> str:
    members = []
    for key in draw(st.lists(_KEYS, max_size=4)):
        value = draw(st.one_of(_SCALARS, _objects(depth - 1)) if depth else _SCALARS)
        members.append(f'{draw(_BLANKS)}"{key}"{draw(_BLANKS)}:{draw(_BLANKS)}{value}')
    return "{" + ",".join(members) + draw(_BLANKS) + draw(st.sampled_from(("}", "}", "}", "}", ",}", "", "]")))


@st.composite
def _plain_objects(draw: st.DrawFn) -> str:
    """Draw an object as programs write them, cut off at times."""
    keys = st.sampled_from(("a", "b", "c", "1", "a.b", "b_c", "é"))
    scalars = st.one_of(st.text(max_size=4), st.integers(), st.floats(), st.booleans(), st.none())
    values = st.recursive(scalars, lambda inner: st.lists(inner, max_size=2) | st.dictionaries(keys, inner, max_size=3))
    text = json.dumps(draw(st.dictionaries(keys, values, max_size=4)), ensure_ascii=draw(st.booleans()))
    return text[: draw(st.integers(0, len(text)))] if draw(st.integers(0, 4)) == 0 else text


@st.composite
def _pairs(draw: st.DrawFn) -> str:
    values = st.one_of(_TEXTS, _TEXTS.map(lambda text: f'"{text}"'), st.sampled_from(("1", '"x y"', '""', "", '"un')))
    pairs = draw(st.lists(st.tuples(_KEYS, st.sampled_from(("=", "=", "=", "", "==", '"')), values), max_size=5))
    return draw(_BLANKS).join("".join(pair) + draw(st.sampled_from((" ", " ", "", "\x00"))) for pair in pairs)


_JSON_LINES = st.lists(st.one_of(_objects(), _plain_objects(), _TEXTS, st.none()), max_size=8)
_LOGFMT_LINES = st.lists(st.one_of(_pairs(), _TEXTS, st.none()), max_size=8)


def _array(lines: Sequence[str | None], kind: pa.DataType) -> pa.Array:
    """Return a slice, so that the first line does not start at the first byte."""
    texts = ["before", *(line and line.encode("utf-8", "replace").decode() for line in lines), "behind"]
    return pa.array(texts, kind).slice(1, len(lines))


def _check(found: Extracted, lines: pa.Array, run: StageRun, names: Sequence[str]) -> None:
    assert set(found.columns) == set(names)
    assert {len(column) for column in found.columns.values()} == {len(lines)}
    for column in found.columns.values():
        column.validate(full=True)
    for row, line in enumerate(lines.to_pylist()):
        values = {name: column[row].as_py() for name, column in found.columns.items()}
        if found.odd[row]:
            assert set(values.values()) == {None}
            continue
        labels = LineLabels({}, {})
        run(0, line or "", labels)
        assert labels.all() == {name: value for name, value in values.items() if value is not None}, line


def _context(names: Sequence[str]) -> StageContext:
    return StageContext(ParserHints(frozenset(names)))


@given(_JSON_LINES, _WANTED, st.sampled_from((pa.string(), pa.large_string())))
def test_json_keys_are_those_of_the_stage(lines: list[str | None], names: list[str], kind: pa.DataType) -> None:
    array = _array(lines, kind)
    _check(extract_json(array, names), array, compile_json(Json(), _context(names)), names)


@given(_LOGFMT_LINES, _WANTED, st.booleans(), st.booleans())
def test_logfmt_keys_are_those_of_the_stage(
    lines: list[str | None], names: list[str], strict: bool, keep_empty: bool
) -> None:
    array = _array(lines, pa.string())
    stage = Logfmt(strict=strict, keep_empty=keep_empty)
    _check(extract_logfmt(array, names, strict, keep_empty), array, compile_logfmt(stage, _context(names)), names)


_LITERALS = st.text("ab -é\ufffd", min_size=1, max_size=3)


@st.composite
def _patterns(draw: st.DrawFn) -> tuple[str, list[str]]:
    names = draw(st.lists(st.sampled_from(("a", "b", "c", "d")), min_size=1, max_size=4, unique=True))
    captures = [f"<{name}>" if draw(st.booleans()) or not place else "<_>" for place, name in enumerate(names)]
    text = "".join(capture + draw(_LITERALS) for capture in captures[:-1]) + captures[-1]
    kept = [name for name in names if f"<{name}>" in captures]
    return draw(st.just("") | _LITERALS) + text + draw(st.just("") | _LITERALS), kept


@given(st.lists(st.text("ab -é\ufffd", max_size=12) | st.none(), max_size=8), _patterns(), st.data())
def test_captures_of_patterns_are_those_of_the_stage(
    lines: list[str | None], pattern: tuple[str, list[str]], data: st.DataObject
) -> None:
    text, captures = pattern
    stage, array = Pattern(text), _array(lines, pa.string())
    _check(extract_pattern(array, stage), array, compile_pattern(stage, StageContext()), captures)
    wanted = data.draw(st.lists(st.sampled_from(captures), min_size=1, unique=True))
    found = extract_pattern(array, stage, wanted)
    assert not found.odd.any()
    _check(found, array, compile_pattern(stage, _context(wanted)), wanted)


@pytest.mark.parametrize(
    ("line", "values"),
    [
        ('{"status": 500, "path": "/a"}', ["500", "/a"]),
        ('{"x": {"y": [1, "}"]}, "status": -1.50e3, "path": "a\\"b\\n\\u20ac"} trailing', ["-1.50e3", 'a"b\n€']),
        ('{"path": true, "path": false, "status": null,}', [None, "true"]),
        ('{"sta.tus": 1, "path": "", "status": "ä", not read', ["ä", ""]),
        ('{"http": {"status": 1}, "path": {"status": 2}}', [None, None]),
    ],
)
def test_usual_json_is_not_left_to_the_stage(line: str, values: list[str | None]) -> None:
    found = extract_json(pa.array([line]), ["status", "path"])
    assert ([column[0].as_py() for column in found.columns.values()], found.odd.tolist()) == (values, [False])


@pytest.mark.parametrize(
    ("line", "values"),
    [
        ("status=500 path=/a", ["500", "/a"]),
        ('level=info path="a\\"b\\t\\u20ac" =x a=b=c "q" status="5"', ["5", 'a"b\t€']),
        ('status= path="" status=7 path="unclosed', ["7", None]),
        ("status path=C:\\new", [None, "C:\\new"]),
    ],
)
def test_usual_logfmt_is_not_left_to_the_stage(line: str, values: list[str | None]) -> None:
    found = extract_logfmt(pa.array([line]), ["status", "path"], strict=False, keep_empty=False)
    assert ([column[0].as_py() for column in found.columns.values()], found.odd.tolist()) == (values, [False])


def test_nested_members_are_found_by_their_flat_names() -> None:
    lines = pa.array(['{"a": {"b": {"c": 1}, "d-e": 2}, "1": {"x": 3}}', '{"a_b_c": 4, "a": {"b": {"c": 5'])
    found = extract_json(lines, ["a_b_c", "a_d_e", "_1_x"])
    assert [column.to_pylist() for column in found.columns.values()] == [["1", None], ["2", None], ["3", None]]
    assert found.odd.tolist() == [False, True]


def test_an_object_without_an_end_is_left_to_the_stage_though_all_labels_are_found() -> None:
    assert extract_json(pa.array(['{"a": {"b": 1', '{"a": {"b": 1}']), ["a_b"]).odd.tolist() == [True, False]


def test_objects_of_any_depth_are_bounded() -> None:
    deep = ['{"a":' * depth + "1" + "}" * depth for depth in (2, 16, 17, 18, 100_000)]
    names = ["_".join("a" * depth) for depth in (2, 16, 17, 18)]
    assert extract_json(pa.array(deep), names).odd.tolist() == [False, False, False, True, True]


def test_many_lines_have_the_values_of_the_stage() -> None:
    chance = random.Random(5)
    lines = [
        json.dumps(
            {"msg": "x" * chance.randrange(9), "status": chance.randrange(600), "path": "/é" * chance.randrange(3)}
        )
        for _ in range(2000)
    ]
    found = extract_json(pa.array(lines), ["path", "status"])
    assert found.columns["path"].to_pylist() == [json.loads(line)["path"] for line in lines]
    assert found.columns["status"].to_pylist() == [str(json.loads(line)["status"]) for line in lines]
    assert not found.odd.any()


def test_no_names_are_refused() -> None:
    with pytest.raises(ValueError, match="names of labels"):
        extract_json(pa.array([""]), ())
    with pytest.raises(ValueError, match="names of labels"):
        extract_logfmt(pa.array([""]), (), strict=False, keep_empty=False)
