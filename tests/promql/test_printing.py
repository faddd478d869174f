"""Expressions as text on one line, on several, and as JSON."""

from __future__ import annotations

import pytest

from lakerunner.model.display import go_quote
from lakerunner.promql.document import document
from lakerunner.promql.parse import parse
from lakerunner.promql.printer import expression_text, pretty_text
from lakerunner.series.numerals import number_text, scalar_text


@pytest.mark.parametrize(
    ("text", "printed"),
    [
        ("SUM  (foo)  by(a,'b c')", 'sum by (a, "b c") (foo)'),
        ("foo{b='x',a=~`y\\d`}", 'foo{a=~"y\\\\d",b="x"}'),
        ("{'foo',a='b'}", '{__name__="foo",a="b"}'),
        ("foo[60s]  offset - 90m @ 1.2345", "foo[1m] @ 1.235 offset -1h30m"),
        ("foo @ 5 anchored offset 1h", "foo @ 5.000 anchored offset 1h"),
        ("foo[5m]@start()smoothed", "foo[5m] smoothed @ start()"),
        ("foo[1h:120]", "foo[1h:2m]"),
        ("foo[52w:1d1h]", "foo[52w:1d1h]"),
        ("foo[365d:]", "foo[1y:]"),
        ("foo[(5m*2)-step()]", "foo[(5m * 2) - step()]"),
        ("foo+ignoring()group_left bar", "foo + ignoring () group_left () bar"),
        ("foo/on(a)fill(1)bar", "foo / on (a) fill (1) bar"),
        ("foo - fill_right(1e21)fill_left(-0.00001) bar", "foo - fill_left (-1e-05) fill_right (1e+21) bar"),
        ("1e21 + 1e-7 + -Inf", "1000000000000000000000 + 0.0000001 + -Inf"),
        ("- - 5m", "5m"),
        ("-(foo)", "-(foo)"),
    ],
)
def test_one_line(text: str, printed: str) -> None:
    assert expression_text(parse(text)) == printed


def test_several_lines() -> None:
    text = (
        "topk(5, sum by (job) ("
        "rate(very_long_metric_name_total{label_one='value', label_two='another value, longer'}[5m]))"
        " / on (job) group_left () max by (job) (another_long_metric_name_total{label_one='value'}) > 1)"
    )
    assert pretty_text(parse(text)) == (
        "topk(\n"
        "  5,\n"
        "      sum by (job) (\n"
        '        rate(very_long_metric_name_total{label_one="value",label_two="another value, longer"}[5m])\n'
        "      )\n"
        "    / on (job) group_left ()\n"
        '      max by (job) (another_long_metric_name_total{label_one="value"})\n'
        "  >\n"
        "    1\n"
        ")"
    )
    assert pretty_text(parse("sum( foo )")) == "sum(foo)"


def test_json() -> None:
    found = document(parse("round(foo == bool 5m)"))
    assert found == {
        "type": "call",
        "func": {"name": "round", "argTypes": ["vector", "scalar"], "variadic": 1, "returnType": "vector"},
        "args": [
            {
                "type": "binaryExpr",
                "op": "==",
                "lhs": {
                    "type": "vectorSelector",
                    "name": "foo",
                    "offset": 0,
                    "offsetExpr": None,
                    "matchers": [{"name": "__name__", "value": "foo", "type": "="}],
                    "timestamp": None,
                    "startOrEnd": None,
                    "anchored": False,
                    "smoothed": False,
                },
                "rhs": {"type": "numberLiteral", "val": "300"},
                "matching": None,
                "bool": True,
            }
        ],
    }


def test_json_of_numbers_that_json_lacks() -> None:
    found = document(parse("foo + fill(NaN) bar"))
    assert found["matching"]["fillValues"] == {"lhs": "NaN", "rhs": "NaN"}


def test_json_of_durations() -> None:
    found = document(parse("foo[(5m):] offset -step()"))
    assert found["rangeExpr"] == {
        "type": "durationExpr",
        "op": "+",
        "lhs": None,
        "rhs": {"type": "numberLiteral", "val": "300", "duration": True},
        "wrapped": True,
    }
    assert (found["range"], found["step"], found["stepExpr"], found["offset"]) == (0, 0, None, 0)
    assert found["offsetExpr"]["rhs"]["op"] == "step"


def test_text_as_go_writes_it() -> None:
    assert go_quote('a"\\\n\x00\x7f\u00a0é\u200b\U000e0001') == '"a\\"\\\\\\n\\x00\\x7f\\u00a0é\\u200b\\U000e0001"'
    assert [scalar_text(value) for value in (-0.0, 1e22, 1.5e-8)] == ["-0", "10000000000000000000000", "0.000000015"]
    assert [number_text(value) for value in (999999.5, -1e6, 32745600.0, 0.0001, 2.5e-7, 1e100)] == [
        "999999.5",
        "-1e+06",
        "3.27456e+07",
        "0.0001",
        "2.5e-07",
        "1e+100",
    ]
