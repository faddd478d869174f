"""The kernel of levels gives the answers of `line_level`."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakerunner.model.streams.line_level import LEVEL_NAMES, LEVELS, line_level
from lakerunner.model.streams.line_levels import LINE_LEVELS, line_levels

_WORDS = (*LEVELS, "Error", "WARN", "notice", "", "errors", "information!", "\u0131nfo", "\u0130nfo", "\u017feverity")
_SIGNS = (*" \t\n\v\r\x00\x1f[](){}:,!\"'=\\/.-_0", "\u3000", "\xa0", "\ufffd", "\u2028", "é", "\\u006c", '\\"', "true")
_PIECES = st.sampled_from((*LEVEL_NAMES, *_WORDS, *_SIGNS))
_LINES = st.lists(_PIECES, max_size=12).map("".join)
_VALUES = st.sampled_from(('"info"', '"ERR"', '"x"', "1", "-2.5e3", "null", "tru", "[1, {}]", "{", '"', '{"level": 3}'))
_KEYS = st.sampled_from((*LEVEL_NAMES, "msg", "a b", "le\\u0076el", "\\"))
_SPACES = st.sampled_from(("", " ", "\n", "\x0b"))


@st.composite
def _objects(draw: st.DrawFn, depth: int = 3) -> str:
    members = []
    for key in draw(st.lists(_KEYS, max_size=3)):
        value = draw(st.one_of(_VALUES, _objects(depth - 1)) if depth else _VALUES)
        members.append(f'{draw(_SPACES)}"{key}"{draw(_SPACES)}:{draw(_SPACES)}{value}')
    return "{" + ",".join(members) + draw(_SPACES) + draw(st.sampled_from(("}", "}", "}", ",}", "")))


@st.composite
def _pairs(draw: st.DrawFn) -> str:
    values = st.one_of(_PIECES, _PIECES.map(lambda text: f'"{text}"'), st.sampled_from(("info", '"er\\u0072or"')))
    pairs = draw(st.lists(st.tuples(st.one_of(_KEYS, _PIECES), st.sampled_from(("=", "=", "", "==")), values)))
    return draw(_SPACES).join("".join(pair) + draw(_SPACES) for pair in pairs)


def _levels(lines: list[str | None]) -> list[str]:
    return [LINE_LEVELS[number] for number in line_levels(pa.array(lines, pa.string())).tolist()]


@given(st.lists(st.one_of(_LINES, _pairs(), _objects(), _objects().map(lambda line: line + " error")), max_size=20))
def test_the_kernel_finds_what_line_level_finds(lines: list[str]) -> None:
    assert _levels([*lines]) == [line_level(line) for line in lines]


@pytest.mark.parametrize(
    ("line", "level"),
    [
        ("", "unknown"),
        ("request failed: ERROR!", "error"),
        ("type:error", "unknown"),
        ('ts=1 msg="a \\"warn\\" b" lvl=dbg', "debug"),
        ('msg="unclosed level=info', "info"),
        ('{"a": {"severity": "Warning"}, "level": "info"}', "warn"),
        ('{"a": {"b": {"level": "infos"}}}', "unknown"),
        ('{"le\\u0076el": "fatal"}', "fatal"),
        ('\u3000{"level": "trace"}', "trace"),
        ("level=\u0130nfo", "info"),
    ],
)
def test_levels_of_lines(line: str, level: str) -> None:
    assert _levels([line]) == [level] == [line_level(line)]


def test_slices_nulls_and_no_lines() -> None:
    lines = pa.array(["level=info", None, "WARN x", "error"]).slice(1)
    assert [LINE_LEVELS[number] for number in line_levels(lines).tolist()] == ["unknown", "warn", "error"]
    assert line_levels(pa.array([], pa.string())).tolist() == []
