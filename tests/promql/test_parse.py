"""PromQL text to expressions and back, and what is said of text that is none."""

from __future__ import annotations

from dataclasses import fields, is_dataclass, replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakerunner.model.errors import Position, TooLarge, UserError
from lakerunner.model.labels.matcher import Matcher
from lakerunner.promql.cursor import MAX_NESTING
from lakerunner.promql.functions import FUNCTIONS
from lakerunner.promql.parse import MAX_DEPTH, MAX_LENGTH, parse, parse_selector
from lakerunner.promql.printer import expression_text
from lakerunner.promql.resolve import DurationTerm, EdgeOfRange
from lakerunner.series.expression import (
    NOWHERE,
    Aggregate,
    Binary,
    Call,
    Kind,
    Matching,
    Number,
    Paren,
    Range,
    Selector,
    Span,
    Subquery,
    Text,
    Unary,
)
from lakerunner.series.function import kind_of

FOO = Selector((Matcher("__name__", "=", "foo"),), "foo")
BAR = Selector((Matcher("__name__", "=", "bar"),), "bar")


def without_spans(node: Any) -> Any:
    if isinstance(node, tuple):
        return tuple(map(without_spans, node))
    if isinstance(node, Span) or not is_dataclass(node) or isinstance(node, type):
        return node
    changes = {field.name: without_spans(getattr(node, field.name)) for field in fields(node)}
    return replace(node, **(changes | ({"span": NOWHERE} if "span" in changes else {})))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1", Number(1)),
        ("-5m", Number(-300, is_duration=True)),
        ("017 ", Number(15)),
        ("08", Number(8)),
        ("0x1F", Number(31)),
        ("1_000.5", Number(1000.5)),
        ("'a\\u00e9\\x41\\101\\''", Text("aéAA'")),
        ("`a\\n`", Text("a\\n")),
        ("foo", FOO),
        ("foo offset 1h30m", replace(FOO, offset=5_400_000)),
        ("foo offset -0.5 @ 1.5", replace(FOO, offset=-500, at=1500)),
        ("foo @ end()", replace(FOO, at=EdgeOfRange("end"))),
        ("foo[5m] smoothed", Range(replace(FOO, extended="smoothed"), 300_000)),
        ("foo[5m:] offset 1m", Subquery(FOO, 300_000, offset=60_000)),
        ("-foo ^ 2", Unary("-", Binary("^", FOO, Number(2)))),
        ("2 ^ 3 ^ 4", Binary("^", Number(2), Binary("^", Number(3), Number(4)))),
        ("1 - 2 - 3", Binary("-", Binary("-", Number(1), Number(2)), Number(3))),
        ("1 + 2 * 3", Binary("+", Number(1), Binary("*", Number(2), Number(3)))),
        ("foo + bar", Binary("+", FOO, BAR, Matching())),
        ("foo + on() 1", Binary("+", FOO, Number(1))),
        ("foo and bar", Binary("and", FOO, BAR, Matching("many-to-many"))),
        (
            "foo > bool on(a) group_left(b) fill_right(-1) bar",
            Binary(">", FOO, BAR, Matching("many-to-one", ("a",), True, ("b",), None, -1.0), True),
        ),
        ("sum(foo) by (on, 'x y')", Aggregate("sum", FOO, grouping=("on", "x y"))),
        ("TOPK without (a) (2, foo)", Aggregate("topk", FOO, Number(2), ("a",), True)),
        ("step() + (foo)", Binary("+", Call("step"), Paren(FOO))),
        (
            '{"a.b", "c.d"!~"e|f",}',
            Selector((Matcher("__name__", "=", "a.b"), Matcher("c.d", "!~", "e|f"))),
        ),
        ("foo{by='x'}", Selector((Matcher("by", "=", "x"), *FOO.matchers), "foo")),
        (
            "foo[5m * step()]",
            Range(FOO, DurationTerm("*", (DurationTerm("number", (), 300, True), DurationTerm("step")))),
        ),
        ("foo offset 5m * 2", Binary("*", replace(FOO, offset=300_000), Number(2))),
    ],
)
def test_expressions(text: str, expected: object) -> None:
    assert without_spans(parse(text)) == expected


@pytest.mark.parametrize(
    ("text", "line", "column", "message"),
    [
        ("foo bar", 1, 5, 'unexpected identifier "bar"'),
        ("sum(foo\n  bar)", 2, 3, 'unexpected identifier "bar" in aggregation'),
        ("foo{a}", 1, 6, 'unexpected "}" in label matching, expected label matching operator'),
        ("foo[5m", 1, 7, "unclosed left bracket"),
        ("foo[5m:1m 2]", 1, 11, 'unexpected number "2" in subquery selector, expected "]"'),
        ("foo offset sum", 1, 12, "unexpected <aggr:sum> in offset, expected number, duration, step(), or range()"),
        ("foo offset NaN", 1, 12, "duration out of range"),
        ("1 == 1", 1, 3, "comparisons between scalars must use BOOL modifier"),
        ("rate(foo)", 1, 6, 'expected type range vector in call to function "rate", got instant vector'),
        ("rate(foo[5m], 1)", 1, 1, 'expected 1 argument(s) in call to "rate", got 2'),
        ("label_join(foo)", 1, 1, 'expected at least 3 argument(s) in call to "label_join", got 1'),
        ("round(foo, 1, 2)", 1, 1, 'expected at most 2 argument(s) in call to "round", got 3'),
        ("nosuch(1)", 1, 1, 'unknown function with name "nosuch"'),
        ('{a=~".*"}', 1, 1, "vector selector must contain at least one non-empty matcher"),
        ('foo{a=~"x("}', 1, 5, "error parsing regexp: missing closing ): `x(`"),
        ('{ä="b"}', 1, 2, "unexpected character inside braces: 'ä'"),
        ('{"ä"} x', 1, 7, 'unexpected identifier "x"'),  # columns are characters
        ('"\\xff"', 1, 1, 'string "\\xff" is not UTF-8'),
        ("1e999", 1, 1, 'error parsing number: strconv.ParseFloat: parsing "1e999": value out of range'),
    ],
)
def test_mistakes_are_told_with_their_place(text: str, line: int, column: int, message: str) -> None:
    with pytest.raises(UserError) as raised:
        parse(text)
    assert raised.value.message == f"parse error: {message}"
    assert raised.value.position == Position(line, column)


def test_an_empty_query_has_no_place() -> None:
    with pytest.raises(UserError, match="no expression found in input") as raised:
        parse("")
    assert raised.value.position is None


def test_spans() -> None:
    expression = parse(" sum by (a) (foo) + (bar offset 1m)")
    assert isinstance(expression, Binary)
    assert expression.span == Span(1, 35)
    assert (expression.left.span, expression.right.span) == (Span(1, 17), Span(20, 35))
    assert isinstance(expression.right, Paren)
    assert expression.right.inner.span == Span(21, 34)


def test_strings_that_are_not_utf8_may_stand_where_a_label_is_named() -> None:
    expression = parse('count_values("a\\xc5z", foo)')
    assert expression_text(expression) == 'count_values("a\\xc5z", foo)'


def test_match_selectors() -> None:
    assert parse_selector('up{a=~"b"}') == (Matcher("a", "=~", "b"), Matcher("__name__", "=", "up"))
    for text, message in (
        ("{a=''}", r"match\[\] must contain"),
        ("up[5m]", r'unexpected "\["'),
        ("1", 'unexpected number "1"'),
        ("", "unexpected end of input"),
    ):
        with pytest.raises(UserError, match=message):
            parse_selector(text)


@pytest.mark.parametrize(
    ("text", "kind"),
    [("1 + 1", Kind.SCALAR), ("-(1 + foo)", Kind.VECTOR), ("'a'", Kind.STRING), ("foo[1m]", Kind.MATRIX)],
)
def test_kinds(text: str, kind: Kind) -> None:
    assert kind_of(parse(text), FUNCTIONS) is kind


@pytest.mark.parametrize(("before", "after"), [("(", ")"), ("abs(", ")"), ("-", ""), ("foo[", "]")])
def test_nesting_is_limited(before: str, after: str) -> None:
    if before == "foo[":
        many = "foo[{}1{}]".format("(" * (MAX_NESTING - 2), ")" * (MAX_NESTING - 2))
        too_many = "foo[{}1{}]".format("(" * MAX_NESTING, ")" * MAX_NESTING)
    else:
        many = before * (MAX_NESTING - 1) + "foo" + after * (MAX_NESTING - 1)
        too_many = before * MAX_NESTING + "foo" + after * MAX_NESTING
    assert parse(expression_text(parse(many))) is not None
    with pytest.raises(UserError, match=f"more than {MAX_NESTING} expressions inside each other"):
        parse(too_many)


def test_depth_and_length_are_limited() -> None:
    assert expression_text(parse(" + ".join(["foo"] * MAX_DEPTH))).count("foo") == MAX_DEPTH
    with pytest.raises(UserError, match=f"more than {MAX_DEPTH} levels deep"):
        parse(" + ".join(["foo"] * (MAX_DEPTH + 1)))
    with pytest.raises(UserError, match=f"more than {MAX_DEPTH} levels deep"):
        parse(" + ".join(["1"] * 10_000))
    assert parse("f" * MAX_LENGTH)
    with pytest.raises(TooLarge, match=f"the limit is {MAX_LENGTH}"):
        parse("f" * (MAX_LENGTH + 1))


# Queries of every form, as text. What Prometheus prints otherwise than it reads is not among them: a plus before
# step(), less than a ms, matchers out of order.
_durations = st.sampled_from(["5m", "1h30m", "90d", "1y", "7", "0.25"])
_terms = st.recursive(
    _durations | st.sampled_from(["step()", "range()"]),
    lambda inner: st.one_of(
        st.tuples(inner, st.sampled_from(["+", "-", "*", "/", "%", "^"]), inner).map(" ".join),
        inner.map("({})".format),
        inner.map("-({})".format),
        st.tuples(st.sampled_from(["min_of", "max_of"]), inner, inner).map(lambda given: "{}({}, {})".format(*given)),
    ),
    max_leaves=4,
)
_offsets = st.one_of(_durations, _durations.map("-{}".format), _terms.map("({})".format), _terms.map("-({})".format))
_labels = st.lists(st.sampled_from(["a", "by", '"x y"', "instance"]), max_size=2).map(", ".join)
_matchers = st.lists(
    st.sampled_from(['a="b"', 'a!=""', 'b=~"x|y"', '"c.d"!~"z.*"', "e='\"'", 'f="\\n\\u00e9\\x00"']), max_size=3
).map(lambda found: f"{{{','.join(sorted(found))}}}" if found else "")
_series = st.tuples(st.sampled_from(["foo", "a:b", "sum", "offset"]), _matchers).map("".join)
_behind = st.one_of(
    st.just(""),
    _offsets.map(" offset {}".format),
    st.sampled_from([" @ 5", " @ -1.5", " @ start()", " @ end() offset 5m", " anchored", " smoothed @ 7"]),
)
_vectors = st.recursive(
    st.tuples(_series, _behind).map("".join),
    lambda inner: st.one_of(
        st.tuples(st.sampled_from(["sum", "count", "sum by (a)", "max without ()", "topk by ('x y')"]), inner).map(
            lambda given: f"{given[0]}({'3, ' if 'topk' in given[0] else ''}{given[1]})"
        ),
        st.tuples(
            inner,
            st.sampled_from(
                ["+", "*", "^", "atan2", "==", "> bool", "</", "and", "or", "- on(a)", "/ ignoring(b) group_left"]
            ),
            inner,
        ).map(" ".join),
        st.tuples(inner, st.sampled_from(["%", "<= bool", ">/"]), st.sampled_from(["1", "-5m", "Inf", "1e-9"])).map(
            " ".join
        ),
        inner.map("-{}".format),
        inner.map("({})".format),
        inner.map("abs({})".format),
        st.tuples(inner, _terms).map(lambda given: f"max_over_time(({given[0]})[5m + ({given[1]}):1m])"),
        st.tuples(_series, _terms, _offsets).map(lambda given: "rate({}[{}] offset {})".format(*given)),
    ),
    max_leaves=6,
)


@given(_vectors)
def test_what_is_printed_is_read_as_the_same(text: str) -> None:
    expression = parse(text)
    assert without_spans(parse(expression_text(expression))) == without_spans(expression)
