"""Patterns of lines: the fingerprint's tokens, `<_>` where they vary, and the law that `|>` finds every line."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakerunner.logql.pattern_text import common_start, pattern_of, read_tokens, signature
from lakerunner.logql.stages.line_filter import line_test
from lakerunner.logql.text.syntax import LineFilter, LinePattern
from lakerunner.pipeline.steps.record_columns import _fingerprints


def found_by(pattern: str, line: str) -> bool:
    """Test a line by the product's own filter `|>`."""
    return line_test(LineFilter("|>", (LinePattern(pattern),)))(line)


@pytest.mark.parametrize(
    ("lines", "pattern"),
    [
        (["user 5 in", "user 17 in"], "user <_> in"),
        (["took=10ms path=/a/5", "took=7ms path=/a/6"], "took=<_> path=/a/<_>"),
        (['say "a b" to 7', "say 'x' to 8"], "say <_> to <_>"),
        (["same 5 line", "same 5 line"], "same <_> line"),
        (["a  b 1", "a b 2"], "a<_>b <_>"),
        (["  a 1 ", " a 2"], "<_>a <_>"),
        (['{"a":"x1","b":2}', '{"a":"y2","b":3}'], '{"a":"<_>","b":<_>}'),
        (["page <body> 1"], "page <_> <_>"),
        (["odd \ufffd 1"], "odd <_> <_>"),
        (["12", "7"], "<_>"),
        (['"a took b" took 5', '"c" took 6'], "<_> took <_>"),
        # The first ` ms` stands inside of the quoted part: what is behind it cannot be told apart.
        (['x "a b ms c" 1 ms', 'x "2" 2 ms'], "x <_> <_> <_>"),
    ],
)
def test_pattern(lines: list[str], pattern: str) -> None:
    assert pattern_of(lines) == pattern
    assert all(found_by(pattern, line) for line in lines)


def test_what_all_lines_begin_with_is_literal() -> None:
    low, high = "2024 user 5 in", "2024 user 9 in"
    assert pattern_of([low, high], common_start(low, high)) == "2024 user <_> in"
    assert pattern_of([low], common_start(low, low)) == low
    # `10` and `17` begin alike, and are not the same token.
    assert pattern_of(["n 10", "n 17"], common_start("n 10", "n 17")) == "n <_>"


_PARTS = st.sampled_from(
    ["user", "in", "12", "a1b2", "deadbeef", "feed-face", '"a b"', '""', "'x y'", "it's", '"', "'", "<", ">", "<b>",
     "<_>", " ", "  ", "\t", "\n", "=", "{", "[", "a.b", "a:b", "x@y", "-", "é", "\ufffd", "/", "took", "5ms"]
)  # fmt: skip
_LINES = st.lists(_PARTS, min_size=1, max_size=12).map("".join)


@given(st.lists(_LINES, min_size=1, max_size=5))
def test_every_line_is_found_by_its_pattern(lines: list[str]) -> None:
    pattern = pattern_of(lines)
    for line in lines:
        assert found_by(pattern, line), (pattern, line)


@given(_LINES, _LINES)
def test_signatures_are_equal_where_fingerprints_are(one: str, other: str) -> None:
    assert (signature(one) == signature(other)) == (fingerprint(one) == fingerprint(other))


@given(st.lists(_PARTS, min_size=1, max_size=8), st.data())
def test_lines_of_one_fingerprint_keep_their_fixed_words(parts: list[str], data: st.DataObject) -> None:
    """Other digits make another line with the same fingerprint; its pattern has every fixed word of both."""
    line = "".join(parts)
    digit = data.draw(st.sampled_from("0123456789"))
    other = "".join(digit if sign.isdigit() else sign for sign in line)
    pattern = pattern_of([line, other])
    assert found_by(pattern, line)
    assert found_by(pattern, other)


def test_tokens_without_gaps_at_the_ends() -> None:
    assert read_tokens(' a "b c" 5ms\n') == [
        ("a", False), (" ", False), ('"b c"', True), (" ", False), ("5ms", True),
    ]  # fmt: skip


def fingerprint(line: str) -> int:
    data = np.frombuffer(line.encode() + b"\0" * 16, np.uint8)
    return int(_fingerprints(data, np.array([0], np.int64), np.array([len(line.encode())], np.int64))[0])
