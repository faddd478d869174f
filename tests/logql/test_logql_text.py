"""LogQL text to trees, and what is said of text that is none."""

from __future__ import annotations

from dataclasses import fields, is_dataclass, replace
from typing import Any

import pytest

from lakerunner.logql.text.cursor import MAX_NESTING
from lakerunner.logql.text.parse import MAX_BYTES, MAX_DEPTH, parse_logql
from lakerunner.logql.text.printer import query_text
from lakerunner.logql.text.syntax import (
    AmountTest,
    Assignment,
    Both,
    Constant,
    Decolorize,
    Drop,
    Either,
    Extraction,
    Grouping,
    IpTest,
    Json,
    Keep,
    LabelChoice,
    LabelFilter,
    LabelFormat,
    LabelReplace,
    LineFilter,
    LineFormat,
    LinePattern,
    Logfmt,
    LogRange,
    Operation,
    Pattern,
    Pipeline,
    Query,
    RangeAggregation,
    Regexp,
    Stage,
    TextTest,
    Unpack,
    Unwrap,
    VectorAggregation,
    VectorLiteral,
)
from lakerunner.model.errors import Position, UserError
from lakerunner.model.labels.matcher import Matcher
from lakerunner.series.expression import NOWHERE, Matching, Span

MINUTE = 60_000_000_000
APP = Matcher("app", "=", "x")
LINES = Pipeline((APP,))
RATE = RangeAggregation("rate", LogRange(LINES, MINUTE))
X, Y, Z = (TextTest(Matcher(name, "=", "")) for name in "xyz")


def without_spans(node: Any) -> Any:
    if isinstance(node, tuple):
        return tuple(map(without_spans, node))
    if isinstance(node, Span) or not is_dataclass(node) or isinstance(node, type):
        return node
    changes = {field.name: without_spans(getattr(node, field.name)) for field in fields(node)}
    return replace(node, **(changes | ({"span": NOWHERE} if "span" in changes else {})))


def parsed(text: str) -> Query:
    return without_spans(parse_logql(text))


def refusal(text: str) -> str:
    with pytest.raises(UserError) as raised:
        parse_logql(text)
    return raised.value.message


@pytest.mark.parametrize(
    ("text", "matchers"),
    [
        ('{app="x"}', (APP,)),
        ("{ app = `x`, b != `y` }", (APP, Matcher("b", "!=", "y"))),
        ('{app="x",b=~"y.+",c!~"z"}', (APP, Matcher("b", "=~", "y.+"), Matcher("c", "!~", "z"))),
        ('{ip="x", rate="y", of="z"}', (Matcher("ip", "=", "x"), Matcher("rate", "=", "y"), Matcher("of", "=", "z"))),
        ('({app="x"})', (APP,)),
        (r'{app="\x41\u00e9\101\"\xff"}', (Matcher("app", "=", 'AéA"\udcff'),)),
        (r'{app="\ud800\\ud800"}', (Matcher("app", "=", "\ufffd\\ud800"),)),
        ("{app=`a\\n\n`}", (Matcher("app", "=", "a\\n\n"),)),
        ('# a\n{app="x"} # b\n// c\n/* d */', (APP,)),
    ],
)
def test_selectors(text: str, matchers: tuple[Matcher, ...]) -> None:
    assert parsed(text) == Pipeline(matchers)


@pytest.mark.parametrize(
    ("text", "stage"),
    [
        ('|= "a"', LineFilter("|=", (LinePattern("a"),))),
        ('!= "a" or "b"', LineFilter("!=", (LinePattern("a"), LinePattern("b")))),
        ('|~ "("', LineFilter("|~", (LinePattern("("),))),
        ('!~ "a"', LineFilter("!~", (LinePattern("a"),))),
        ('|> "<_>"', LineFilter("|>", (LinePattern("<_>"),))),
        ('!> "<_>"', LineFilter("!>", (LinePattern("<_>"),))),
        ('|= ip("::1") or "b"', LineFilter("|=", (LinePattern("::1", is_ip=True), LinePattern("b")))),
        ('|= "b" or ip("::1")', LineFilter("|=", (LinePattern("b"), LinePattern("::1", is_ip=True)))),
        ("| JSON", Json()),
        ('| json a, b="c[0].d"', Json((Extraction("a", "a"), Extraction("b", "c[0].d")))),
        ("| logfmt", Logfmt()),
        ("| logfmt --strict --keep-empty", Logfmt(strict=True, keep_empty=True)),
        ('| logfmt --keep-empty a, b="c"', Logfmt((Extraction("a", "a"), Extraction("b", "c")), keep_empty=True)),
        ('| regexp "(?P<a>.)"', Regexp("(?P<a>.)")),
        ('| pattern "<a> <_>"', Pattern("<a> <_>")),
        ("| unpack", Unpack()),
        ('| line_format "{{.a}}"', LineFormat("{{.a}}")),
        ('| label_format a=b, c="d"', LabelFormat((Assignment("a", "b", is_rename=True), Assignment("c", "d")))),
        ('| drop a, b="c"', Drop((LabelChoice("a"), LabelChoice("b", Matcher("b", "=", "c"))))),
        ('| keep a, b!~"c"', Keep((LabelChoice("a"), LabelChoice("b", Matcher("b", "!~", "c"))))),
        ("| decolorize", Decolorize()),
    ],
)
def test_stages(text: str, stage: Stage) -> None:
    assert parsed(f'{{app="x"}} {text}') == Pipeline((APP,), (stage,))


def test_stages_keep_their_order() -> None:
    query = parsed('{app="x"} | json |= "a" | x="" != "b" | unpack')
    assert isinstance(query, Pipeline)
    assert [type(stage) for stage in query.stages] == [Json, LineFilter, LabelFilter, LineFilter, Unpack]


@pytest.mark.parametrize(
    ("text", "test"),
    [
        ('a="b"', TextTest(Matcher("a", "=", "b"))),
        ('a!~"b"', TextTest(Matcher("a", "!~", "b"))),
        ("a=5", AmountTest("a", "==", 5, "number", "5")),
        ("a==5", AmountTest("a", "==", 5, "number", "5")),
        ("a!=-5.5", AmountTest("a", "!=", -5.5, "number", "-5.5")),
        ("a>+5e3", AmountTest("a", ">", 5000, "number", "+5e3")),
        ("a>=0x1p2", AmountTest("a", ">=", 4, "number", "0x1p2")),
        ("a<250ms", AmountTest("a", "<", 250_000_000, "duration", "250ms")),
        ("a<=1.5h", AmountTest("a", "<=", 90 * MINUTE, "duration", "1.5h")),
        ("a<=1d12h", AmountTest("a", "<=", 36 * 60 * MINUTE, "duration", "1d12h")),
        ("a>-5m", AmountTest("a", ">", -5 * MINUTE, "duration", "-5m")),
        ("a>2.5KiB", AmountTest("a", ">", 2560, "bytes", "2.5KiB")),
        ("a>5PB", AmountTest("a", ">", 5 * 10**15, "bytes", "5PB")),
        ("a>5PiB", AmountTest("a", ">", 5 << 50, "bytes", "5PiB")),
        ("a>0B", AmountTest("a", ">", 0, "bytes", "0B")),
        ("a>1kB", AmountTest("a", ">", 1000, "bytes", "1kB")),
        ('a=ip("::1")', IpTest("a", "=", "::1")),
        ('a!=ip("::1")', IpTest("a", "!=", "::1")),
        ('x="" and y=""', Both(X, Y, "and")),
        ('x="", y=""', Both(X, Y, ",")),
        ('x="" y=""', Both(X, Y, " ")),
        ('x="" OR y=""', Either(X, Y)),
        ('x="" or y="" and z=""', Either(X, Both(Y, Z))),
        ('x="" and y="" or z=""', Either(Both(X, Y), Z)),
        ('(x="" or y="") and z=""', Both(Either(X, Y), Z)),
        ('x="" and y="" and z=""', Both(Both(X, Y), Z)),
        ('x="" or y="", z=""', Either(X, Both(Y, Z, ","))),
        ('x="", y="" or z=""', Both(X, Either(Y, Z), ",")),
        ('x="" y="" z=""', Both(X, Both(Y, Z, " "), " ")),
    ],
)
def test_label_filters(text: str, test: Any) -> None:
    assert parsed(f'{{app="x"}} | {text}') == Pipeline((APP,), (LabelFilter(test),))


def sum_of(lines: LogRange) -> RangeAggregation:
    return RangeAggregation("sum_over_time", lines)


@pytest.mark.parametrize(
    ("text", "query"),
    [
        ('rate({app="x"}[1m])', RATE),
        ('RATE (({app="x"}) [1m])', RATE),
        ('rate((({app="x"}[1m])))', RATE),
        ('rate({app="x"}[1m] offset 2m)', RangeAggregation("rate", LogRange(LINES, MINUTE, 2 * MINUTE))),
        ('rate({app="x"}[1m] offset -2m)', RangeAggregation("rate", LogRange(LINES, MINUTE, -2 * MINUTE))),
        *(
            (f"rate({text})", RangeAggregation("rate", LogRange(Pipeline((APP,), (Json(),)), MINUTE, MINUTE)))
            for text in (
                '{app="x"} | json [1m] offset 1m',
                '{app="x"} [1m] offset 1m | json',
                '({app="x"} | json) [1m] offset 1m',
                '({app="x"} | json [1m] offset 1m)',
                '({app="x"} [1m] offset 1m | json)',
            )
        ),
        *(
            (f"sum_over_time({text})", sum_of(LogRange(LINES, MINUTE, MINUTE, Unwrap("a", "bytes", (LabelFilter(X),)))))
            for text in (
                '{app="x"} | unwrap bytes(a) | x="" [1m] offset 1m',
                '{app="x"} [1m] offset 1m | unwrap bytes(a) | x=""',
                '({app="x"} | unwrap bytes(a) | x="") [1m] offset 1m',
                '({app="x"}) [1m] offset 1m | unwrap bytes(a) | x=""',
            )
        ),
        (
            'quantile_over_time(0.9, {app="x"} | unwrap duration_seconds(a) [1m]) by (b, c)',
            RangeAggregation(
                "quantile_over_time",
                LogRange(LINES, MINUTE, 0, Unwrap("a", "duration_seconds")),
                0.9,
                Grouping(("b", "c")),
            ),
        ),
        (
            'max_over_time({app="x"} | unwrap duration [1m]) without ()',
            RangeAggregation("max_over_time", LogRange(LINES, MINUTE, 0, Unwrap("duration")), None, Grouping((), True)),
        ),
        ('sum(rate({app="x"}[1m]))', VectorAggregation("sum", RATE)),
        ('sum by (a) (rate({app="x"}[1m]))', VectorAggregation("sum", RATE, None, Grouping(("a",)))),
        ('sum(rate({app="x"}[1m])) without (a)', VectorAggregation("sum", RATE, None, Grouping(("a",), True))),
        ('topk(3, rate({app="x"}[1m]))', VectorAggregation("topk", RATE, 3)),
        ('approx_topk(3, rate({app="x"}[1m]))', VectorAggregation("approx_topk", RATE, 3)),
        ('max(1 + rate({app="x"}[1m]))', VectorAggregation("max", Operation("+", Constant(1), RATE))),
        ("vector(2.5)", VectorLiteral(2.5)),
        (
            'label_replace(rate({app="x"}[1m]), "a", "$1", "b", "(.*)")',
            LabelReplace(RATE, "a", "$1", "b", "(.*)"),
        ),
    ],
)
def test_functions(text: str, query: Query) -> None:
    assert parsed(text) == query


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("R + R * R", Operation("+", RATE, Operation("*", RATE, RATE))),
        ("R - R - R", Operation("-", Operation("-", RATE, RATE), RATE)),
        ("R ^ R ^ R", Operation("^", RATE, Operation("^", RATE, RATE))),
        ("R or R and R", Operation("or", RATE, Operation("and", RATE, RATE))),
        ("R unless R and R", Operation("and", Operation("unless", RATE, RATE), RATE)),
        ("R > bool 1", Operation(">", RATE, Constant(1), None, True)),
        ("R + on (a) R", Operation("+", RATE, RATE, Matching("one-to-one", ("a",), True))),
        ("R + ignoring () R", Operation("+", RATE, RATE, Matching())),
        (
            "R * on (a) group_left (b, c) R",
            Operation("*", RATE, RATE, Matching("many-to-one", ("a",), True, ("b", "c"))),
        ),
        ("R * ignoring (a) group_right R", Operation("*", RATE, RATE, Matching("one-to-many", ("a",)))),
        ("R == bool on () R", Operation("==", RATE, RATE, Matching(on=True), True)),
    ],
)
def test_operators(text: str, expected: Query) -> None:
    assert parsed(text.replace("R", 'rate({app="x"}[1m])')) == expected


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1 + 2 * 3", "7"),
        ("2 ^ 3 ^ 2", "512"),
        ("-2 ^ 2", "4"),
        ("7 % 4", "3"),
        ("-7 % 4", "-3"),
        ("1 / 0", "NaN"),
        ("1 % 0", "NaN"),
        ("1 > bool 1", "0"),
        ("2 >= 1", "1"),
        ("1 == 1", "1"),
        ("1 != 1", "0"),
        ("1 < 2 <= 1", "1"),
        ("0 ^ -1", "+Inf"),
        ("10 ^ 21", "1e+21"),
        ("1000000 * 10", "10000000"),
        ("1 / 100000", "1e-05"),
        ("(1 + 1)", "2"),
    ],
)
def test_operations_of_numbers_are_computed(text: str, value: str) -> None:
    assert query_text(parse_logql(text)) == value


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", ": syntax error: unexpected $end"),
        ("\n ", "at line 2, col 2: syntax error: unexpected $end"),
        ("{", "at line 1, col 2: syntax error: unexpected $end, expecting IDENTIFIER or }"),
        ("{a", "at line 1, col 3: syntax error: unexpected $end, expecting = or =~ or !~ or !="),
        ("{a=5}", "at line 1, col 4: syntax error: unexpected NUMBER, expecting STRING"),
        ('{a="b",}', "at line 1, col 8: syntax error: unexpected }, expecting IDENTIFIER"),
        ('{json="b"}', "at line 1, col 2: syntax error: unexpected json, expecting IDENTIFIER or }"),
        ('{a="b"} | unwrap x', "at line 1, col 11: syntax error: unexpected unwrap"),
        ('{a="b"} |= 5', "at line 1, col 12: syntax error: unexpected NUMBER, expecting STRING or ip"),
        ('{a="b"} |= ip', "at line 1, col 12: syntax error: unexpected IDENTIFIER, expecting STRING or ip"),
        ('{a="b"} |= ip(5)', "at line 1, col 15: syntax error: unexpected NUMBER, expecting STRING"),
        ('{a="b"} | x>=', "at line 1, col 14: syntax error: unexpected $end"),
        ('{a="b"} | x=1 and', "at line 1, col 18: syntax error: unexpected $end, expecting IDENTIFIER or ("),
        ('{a="b"} | line_format x', "at line 1, col 23: syntax error: unexpected IDENTIFIER, expecting STRING"),
        ('{a="b"} | label_format x', "at line 1, col 25: syntax error: unexpected $end, expecting ="),
        (
            '{a="b"} | label_format x=1',
            "at line 1, col 26: syntax error: unexpected NUMBER, expecting IDENTIFIER or STRING",
        ),
        ('{a="b"} | drop "x"', "at line 1, col 16: syntax error: unexpected STRING, expecting IDENTIFIER"),
        ('{a="b"} == 1 |= "x"', "at line 0, col 14: syntax error: unexpected |="),
        ('rate({a="b"})', "at line 1, col 13: syntax error: unexpected )"),
        ("rate(x)", "at line 1, col 6: syntax error: unexpected IDENTIFIER, expecting NUMBER or { or ("),
        ('rate({a="b"} | unwrap x)', "at line 1, col 24: syntax error: unexpected ), expecting RANGE or |"),
        ('rate({a="b"}[5m] | unwrap x, 1)', "at line 1, col 28: syntax error: unexpected ,, expecting )"),
        ('rate(({a="b"})[5m] | json)', "at line 1, col 22: syntax error: unexpected json, expecting unwrap"),
        ('rate({a="b"}[5m] offset 5)', "at line 1, col 25: syntax error: unexpected NUMBER, expecting DURATION"),
        ('rate({a="b"}[5m] offset -1d)', "at line 1, col 25: syntax error: unexpected -, expecting DURATION"),
        ('rate({a="b"}[5m)', "at line 0, col 13: missing closing ']' in duration"),
        ('rate({a="b"}[])', "at line 0, col 13: empty duration string"),
        ('sum({a="b"})', "at line 1, col 12: syntax error: unexpected )"),
        ("sum by (a b) (1)", "at line 1, col 11: syntax error: unexpected IDENTIFIER, expecting , or )"),
        ("vector(-1)", "at line 1, col 8: syntax error: unexpected -, expecting NUMBER"),
        ("1 + on (a) group_left (b", "at line 1, col 25: syntax error: unexpected $end, expecting , or )"),
        ("1 + group_left (b) 2", "at line 1, col 5: syntax error: unexpected group_left"),
        (r'{a=~"\d"}', "at line 1, col 5: invalid char escape"),
        (r'{a="\400"}', "at line 1, col 4: invalid syntax"),
        ("{a='b'}", "at line 1, col 4: syntax error: unexpected IDENTIFIER, expecting STRING"),
        ("{a='bc'}", "at line 1, col 4: invalid char literal"),
        ("{a=`b}", "at line 1, col 4: literal not terminated"),
        ("1 /* x", "at line 1, col 3: comment not terminated"),
        ("08", "at line 1, col 1: invalid digit '8' in octal literal"),
        ("0b12", "at line 1, col 1: invalid digit '2' in binary literal"),
        ("0x", "at line 1, col 1: hexadecimal literal has no digits"),
        ("0x1.8", "at line 1, col 1: hexadecimal mantissa requires a 'p' exponent"),
        ("5p1", "at line 1, col 1: 'p' exponent requires hexadecimal mantissa"),
        ("5e", "at line 1, col 1: exponent has no digits"),
        ("1__0", "at line 1, col 1: '_' must separate successive digits"),
        ('{a="\0"}', "at line 1, col 5: invalid character NUL"),
        ('{a="\udcff"}', "at line 1, col 5: invalid UTF-8 encoding"),
    ],
)
def test_text_that_cannot_be_read(text: str, message: str) -> None:
    assert refusal(text) == f"parse error {message}"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('count_values("x", 1)', "line 1, col 1: syntax error: unexpected IDENTIFIER: LogQL has no count_values"),
        ("variants(1) of (2)", "line 1, col 1: syntax error: unexpected IDENTIFIER: LogQL has no variants"),
        (
            'rate({a="b"}[5m] @ 1)',
            "line 1, col 18: syntax error: unexpected IDENTIFIER, expecting ): LogQL has no @ modifier",
        ),
        ('rate({a="b"}[5m:1m])', 'line 0, col 13: unknown unit "m:" in duration "5m:1m": LogQL has no subqueries'),
    ],
)
def test_what_logql_lacks_is_refused_by_name(text: str, message: str) -> None:
    assert refusal(text) == f"parse error at {message}"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{a=~"("}', "error parsing regexp: missing closing ): `(`"),
        ('{a="b"} | x=~"("', "error parsing regexp: missing closing ): `(`"),
        ('{a="b"} | drop x=~"("', "error parsing regexp: missing closing ): `(`"),
        (
            '{a="b"} | regexp "(?P<x>.)(?P<x>.)"',
            "invalid regexp parser: duplicate extracted label name 'x'",
        ),
        ('{a="b"} | regexp "x"', "invalid regexp parser: at least one named capture must be supplied"),
        ('{a="b"} | regexp "(?P<a"', "invalid regexp parser: error parsing regexp: invalid named capture: `(?P<a`"),
        (
            '{a="b"} | label_format x=y,x="z"',
            "stage '| label_format x=y,x=\"z\"' : multiple label name 'x' not allowed in a single format operation",
        ),
        (
            '{a="b"} | label_format __error__="z"',
            "stage '| label_format __error__=\"z\"' : __error__ cannot be formatted",
        ),
        ('rate_counter({a="b"}[1m])', "invalid aggregation rate_counter without unwrap"),
        ('bytes_rate({a="b"} | unwrap x [1m])', "invalid aggregation bytes_rate with unwrap"),
        ('rate({a="b"}[1m]) by (x)', "grouping not allowed for rate aggregation"),
        ('rate(1, {a="b"}[1m])', "parameter 1 not supported for operation rate"),
        ('quantile_over_time({a="b"} | unwrap x [1m])', "parameter required for operation quantile_over_time"),
        (
            'quantile_over_time(0x1, {a="b"} | unwrap x [1m])',
            'invalid parameter for operation quantile_over_time: strconv.ParseFloat: parsing "0x1": invalid syntax',
        ),
        ("topk(vector(1))", "parameter required for operation topk"),
        ("topk(1.5, vector(1))", "invalid parameter topk(1.5,"),
        ("bottomk(0, vector(1))", "invalid parameter (must be greater than 0) bottomk(0"),
        ("approx_topk by (x) (1, vector(1))", "grouping not allowed for approx_topk aggregation"),
        ("sort(vector(1)) by (x)", "sort and sort_desc doesn't allow grouping by "),
        ("avg(1, vector(1))", "unsupported parameter for operation avg(1,"),
        ("vector(0x1)", 'unable to parse vectorExpr as a float: strconv.ParseFloat: parsing "0x1": invalid syntax'),
        ("1e999", 'unable to parse literal as a float: strconv.ParseFloat: parsing "1e999": value out of range'),
        ('{a="b"} | json > 1', "unexpected type for left leg of binary operation (>): *syntax.PipelineExpr"),
        ("vector(1) and 2.5", "unexpected literal for right leg of logical/set binary operation (and): 2.500000"),
        (
            'label_replace(vector(1), "a", "b", "c", "(")',
            "invalid regex in label_replace: error parsing regexp: missing closing ): `^(?:()$`",
        ),
    ],
)
def test_text_that_means_nothing_valid(text: str, message: str) -> None:
    assert refusal(text) == f"parse error : {message}"


def test_the_outermost_mistake_is_reported() -> None:
    wrong = 'sum_over_time({a=~".*"}[1m])'
    assert refusal(f"1 or sum(1, {wrong})") == (
        "parse error : unexpected literal for left leg of logical/set binary operation (or): 1.000000"
    )
    assert refusal(f"sum(1, {wrong})") == "parse error : unsupported parameter for operation sum(1,"
    assert refusal(wrong) == "parse error : invalid aggregation sum_over_time without unwrap"
    assert refusal(f"sum(1, {wrong}) x") == "parse error at line 1, col 38: syntax error: unexpected IDENTIFIER"


def test_errors_have_a_place() -> None:
    with pytest.raises(UserError) as raised:
        parse_logql('sum(\n  rate({a="b"}[1x]))')
    assert raised.value.position == Position(2, 15)
    assert str(raised.value) == ('parse error at line 0, col 15: unknown unit "x" in duration "1x" (line 2, column 15)')
    with pytest.raises(UserError) as raised:
        parse_logql('sum(\n  sum_over_time({a="b"}[1m]))')
    assert raised.value.position == Position(2, 3)


def test_stages_can_be_checked() -> None:
    def check(stage: Stage) -> None:
        if isinstance(stage, LineFormat | Pattern):
            raise UserError("not today")

    with pytest.raises(UserError) as raised:
        parse_logql('{a="b"} | pattern "x"', check)
    assert raised.value.message == "parse error : invalid pattern parser: not today"
    with pytest.raises(UserError) as raised:
        parse_logql('rate({a="b"} | json | line_format "x" [1m])', check)
    assert raised.value.message == "parse error : stage '| line_format \"x\"' : not today"
    assert raised.value.position == Position(1, 21)
    parse_logql('rate({a="b"} | json [1m])', check)


def test_long_texts_are_refused() -> None:
    start = '{a="b"} |= "'
    parse_logql(start + "é" * ((MAX_BYTES - len(start) - 2) // 2) + '"')
    longer = start + "x" * (MAX_BYTES - len(start) - 1) + '"'
    assert refusal(longer) == f"parse error : input size too long ({MAX_BYTES} > {MAX_BYTES})"


def test_deep_texts_are_refused_and_never_exhaust_the_stack() -> None:
    assert query_text(parse_logql("(" * MAX_NESTING + "1" + ")" * MAX_NESTING)) == "1"
    message = f"more than {MAX_NESTING} expressions inside each other"
    assert refusal("(" * (MAX_NESTING + 1) + "1").endswith(message)
    assert refusal('{a="b"} | ' + "(" * 50_000).endswith(message)
    assert refusal("rate(" + "(" * 50_000).endswith(message)
    assert refusal("sum(" * 20_000).endswith(message)
    message = f"parse error : the query is more than {MAX_DEPTH} levels"
    assert refusal(" + ".join(["vector(1)"] * 5000)).startswith(message)
    assert refusal('{a="b"} | ' + " ".join(['x=""'] * 5000)).startswith(message)
    assert query_text(parse_logql(" + ".join(["1"] * 5000))) == "5000"


def test_the_deepest_tree_is_printed_so_that_it_can_be_read() -> None:
    chain = " + ".join(["vector(1)"] * (MAX_DEPTH - 1))
    text = query_text(parse_logql(chain))
    assert query_text(parse_logql(text)) == text
    tests = '{a="b"} | ' + " or ".join(['x=""'] * (MAX_DEPTH - 4))
    text = query_text(parse_logql(tests))
    assert query_text(parse_logql(text)) == text
