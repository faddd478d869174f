"""The functions of templates: texts, numbers, times and JSON, each with values of its own."""

from __future__ import annotations

import pytest

from lakerunner.model.templates.template import TemplateError, compile_template
from lakerunner.model.templates.template_functions import TEMPLATE_FUNCTIONS

LABELS = {
    "word": "Straße",
    "path": "/api/v2/users",
    "lines": "one\ntwo",
    "dollars": "$5.00$",
    "raw": "a\udcffb",
    "n": "12",
    "f": "2.75",
    "at": "1600000000",
}
TIME_NS = 1_600_000_000_123_456_789
NOW_NS = 1_650_000_000_500_000_000


def render(text: str) -> str:
    return compile_template(text, TEMPLATE_FUNCTIONS, name="t").render(LABELS, "GET /a 200", TIME_NS, NOW_NS)


def failure(text: str) -> str:
    """Return what follows `error calling`."""
    with pytest.raises(TemplateError) as raised:
        render(text)
    return str(raised.value).partition("error calling ")[2]


@pytest.mark.parametrize(
    ("text", "output"),
    [
        ("{{__line__}}", "GET /a 200"),
        (
            "{{lower `ÀB`}} {{ToLower .word}} {{upper .word}} {{ToUpper `àb`}}",
            "àb straße STRAßE ÀB",
        ),
        ("{{lower `İΣ`}} {{upper `ŉᾳ`}}", "i\u03c3 ŉᾼ"),  # one character becomes one
        ("{{title `a_b c-d 1e éf`}}", "A_b C-D 1e Éf"),
        ("{{upper .raw}}", "A\ufffdB"),
        ("{{Replace `aaa` `a` `b` 2}} {{Replace `aaa` `a` `b` -1}} {{Replace `ab` `` `-` 2}}", "bba bbb -a-b"),
        ("{{replace `/` `.` .path}} {{.path | replace `v2` `v3`}}", ".api.v2.users /api/v3/users"),
        ("{{Trim `xxaxx` `x`}} {{TrimLeft `xxaxx` `x`}} {{TrimRight `xxaxx` `x`}}", "a axx xxa"),
        ("{{TrimPrefix .path `/api`}} {{TrimSuffix .path `/users`}}", "/v2/users /api/v2"),
        ('{{TrimSpace "\\t a \\u00a0\\n"}}|{{trim " \\u2003b "}}|{{trim "\\x1cc"}}', "a|b|\x1cc"),
        ("{{trimAll `$` .dollars}} {{trimPrefix `$` .dollars}} {{trimSuffix `$` .dollars}}", "5.00 5.00$ $5.00"),
        ("{{trunc 3 .path}} {{trunc -5 .path}} {{trunc 99 .path}} {{trunc 4 .word}}", "/ap users /api/v2/users Stra"),
        ("{{trunc 5 .word}}", "Stra\udcc3"),  # bytes, as Go cuts them
        (
            "{{substr 1 4 .path}} {{substr -1 4 .path}} {{substr 8 -1 .path}} {{substr 8 99 .path}}",
            "api /api users users",
        ),
        ("{{contains `v2` .path}} {{hasPrefix `/api` .path}} {{hasSuffix `x` .path}}", "true true false"),
        ("{{indent 2 .lines}}|{{nindent 2 .lines}}", "  one\n  two|\n  one\n  two"),
        ("{{repeat 3 `ab`}}|{{repeat 0 `ab`}}", "ababab|"),
        (
            "{{alignLeft 8 .word}}|{{alignRight 8 .word}}|{{alignLeft 4 .word}}|{{alignRight 2 .word}}",
            "Straße  |  Straße|Stra|ße",
        ),
        ("{{alignLeft -1 .word}}|{{alignRight 0 .word}}", "Straße|"),
        ("{{b64enc .word}} {{b64dec `U3RyYcOfZQ==`}}", "U3RyYcOfZQ== Straße"),
        (
            "{{b64dec `U3R`}}|{{b64dec `U!`}}|{{b64dec `U3Ry=`}}",
            "|".join(f"illegal base64 data at input byte {n}" for n in (0, 1, 4)),
        ),
        ("{{urlencode `a b&ß`}} {{urldecode `a+b%26%C3%9F`}}", "a+b%26%C3%9F a b&ß"),
        ("{{regexReplaceAll `/(v)(\\d)` .path `/${2}$1`}}", "/api/2v/users"),
        ("{{regexReplaceAll `(?P<n>s)` .path `<$n>${x}$$`}}", "/api/v2/u<s>$er<s>$"),
        ("{{regexReplaceAll `a*` `baaac` `x`}} {{regexReplaceAll `x*` `üb` `-`}}", "xbxcx -ü-b-"),
        ("{{regexReplaceAllLiteral `s` .path `$1`}}", "/api/v2/u$1er$1"),
        ("{{regexReplaceAll `.` .raw `x`}} {{regexReplaceAll `b` .raw `c`}}", "xxx a\udcffc"),
        ("{{count `/` .path}} {{count `` `üb`}} {{count `a*` `baaac`}}", "3 3 3"),
        (
            "{{default `d` .none}} {{default `d` .n}} {{default 1 0}} {{default 1 (fromJson `{}`)}} {{default 2}}",
            "d 12 1 1 2",
        ),
        ("{{default `d` __timestamp__ | date `2006`}}", "2020"),
    ],
)
def test_texts(text: str, output: str) -> None:
    assert render(text) == output


@pytest.mark.parametrize(
    ("text", "output"),
    [
        (
            "{{int .n}} {{int .f}} {{int 2.75}} {{int `3.00`}} {{int true}} {{int `0x10`}} {{int `x`}}",
            "12 2 2 3 1 16 0",
        ),
        ("{{int 1e300}}", "-9223372036854775808"),
        ("{{float64 .f}} {{float64 .n}} {{float64 `1e400`}} {{float64 `x`}} {{float64 `inf`}}", "2.75 12 0 0 +Inf"),
        ("{{add 1 .n 2.9 `x`}} {{add}} {{sub .n 15}} {{mul 2 3 .n}}", "15 0 -3 72"),
        ("{{add 9223372036854775807 1}} {{mul 9223372036854775807 2}}", "-9223372036854775808 -2"),
        ("{{div 7 2}} {{div -7 2}} {{mod 7 3}} {{mod -7 3}} {{mod 7 -3}}", "3 -3 1 -1 1"),
        ("{{max 1 .n 3}} {{min 4 `2` 3}} {{maxf 1 .f}} {{minf 1.5 .f}}", "12 2 2.75 1.5"),
        (
            "{{addf 0.1 0.2}} {{addf}} {{subf .f 1 0.5}} {{mulf 1.1 1.1}} {{divf 1 3}}",
            "0.3 0 1.25 1.21 0.3333333333333333",
        ),
        ("{{divf -2 3}} {{divf 10 4 5}}", "-0.6666666666666667 0.5"),
        ("{{ceil 1.2}} {{ceil -1.2}} {{ceil -0.5}} {{floor 1.8}} {{floor -1.2}}", "2 -1 -0 1 -2"),
        (
            "{{round 2.345 2}} {{round 2.5 0}} {{round -2.5 0}} {{round 123.4 -1}} {{round 1.23 1 0.3}}",
            "2.35 3 -3 120 1.3",
        ),
        ("{{round .f 1}}", "2.8"),
    ],
)
def test_numbers(text: str, output: str) -> None:
    assert render(text) == output


@pytest.mark.parametrize(
    ("text", "output"),
    [
        ("{{__timestamp__}}", "2020-09-13 12:26:40.123456789 +0000 UTC"),
        ("{{now}}", "2022-04-15 05:20:00.5 +0000 UTC"),
        ("{{date `2006-01-02` now}} {{__timestamp__ | date `15:04`}}", "2022-04-15 12:26"),
        ("{{date `2006` 0}} {{date `2006` (add 1600000000)}} {{date `2006` `x`}}", "1970 2020 2022"),
        ("{{toDate `2006-01-02` `2021-03-04`}}", "2021-03-04 00:00:00 +0000 UTC"),
        ("{{toDate `2006-01-02` `no`}}", "0001-01-01 00:00:00 +0000 UTC"),
        ("{{toDateInZone `2006-01-02 15:04` `Europe/Zurich` `2021-07-04 10:00`}}", "2021-07-04 10:00:00 +0200 CEST"),
        ("{{toDateInZone `2006-01-02` `No/Where` `2021-07-04`}}", "2021-07-04 00:00:00 +0000 UTC"),
        (
            "{{unixEpoch now}} {{unixEpochMillis now}} {{unixEpochNanos __timestamp__}}",
            "1650000000 1650000000500 1600000000123456789",
        ),
        ("{{unixToTime .at}}", "2020-09-13 12:26:40 +0000 UTC"),
        ("{{unixToTime `18000` | date `2006-01-02`}}", "2019-04-14"),
        ("{{unixToTime `1600000000123` | unixEpochNanos}}", "1600000000123000000"),
        ("{{unixToTime `1600000000123456` | unixEpochNanos}}", "1600000000123456000"),
        ("{{unixToTime `1600000000123456789` | unixEpochNanos}}", "1600000000123456789"),
        (
            "{{__timestamp__.Format `Jan _2`}} {{__timestamp__.Month}} {{printf `%d` __timestamp__.Month}}",
            "Sep 13 September 9",
        ),
        (
            "{{now.Day}} {{now.YearDay}} {{now.Hour}} {{now.Minute}} {{now.Second}} {{now.Nanosecond}}",
            "15 105 5 20 0 500000000",
        ),
        (
            "{{now.Unix}} {{now.UnixMilli}} {{now.UnixMicro}} {{now.UnixNano}}",
            "1650000000 1650000000500 1650000000500000 1650000000500000000",
        ),
        (
            "{{now.After __timestamp__}} {{now.Before __timestamp__}} {{now.Equal now}} {{now.Compare __timestamp__}}",
            "true false true 1",
        ),
        (
            "{{now.IsZero}} {{(toDate `2006` `x`).IsZero}} {{now.String}} {{now.UTC.Year}} {{now.Local.Year}}",
            "false true 2022-04-15 05:20:00.5 +0000 UTC 2022 2022",
        ),
        (
            "{{(now.AddDate 0 -1 20).Format `2006-01-02`}} {{now.Month.String}} {{now.Weekday.String}}",
            "2022-04-04 April Friday",
        ),
    ],
)
def test_times(text: str, output: str) -> None:
    assert render(text) == output


@pytest.mark.parametrize(
    ("json", "output"),
    [
        ('{"b": [1, "x"], "a": {"c": null}}', "map[a:map[c:<nil>] b:[1 x]]"),
        ('"text"', "text"),
        ("1e400", "<no value>"),
        ("[-0, 1e400]", "[-0 <nil>]"),
        ("NaN", "<no value>"),
        ("[1", "<no value>"),
        ("", "<no value>"),
        ('{"a": 1, "a": 2}', "map[a:2]"),
        ('"\\ud800x"', "\ufffdx"),
        ("[" * 100_000, "<no value>"),
    ],
)
def test_json(json: str, output: str) -> None:
    assert compile_template("{{fromJson .x}}", TEMPLATE_FUNCTIONS).render({"x": json}, "", 0, 0) == output


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{{substr 5 2 `abcdef`}}", "substr: runtime error: slice bounds out of range [5:2]"),
        ("{{substr 5 9 `abc`}}", "substr: runtime error: slice bounds out of range [5:3]"),
        ("{{substr -1 9 `abc`}}", "substr: runtime error: slice bounds out of range [:9] with length 3"),
        ("{{substr -1 -1 `abc`}}", "substr: runtime error: slice bounds out of range [:-1]"),
        ("{{repeat -1 `x`}}", "repeat: strings: negative Repeat count"),
        ("{{div 1 0}}", "div: runtime error: integer divide by zero"),
        ("{{mod 1 0}}", "mod: runtime error: integer divide by zero"),
        ("{{divf 1 0}}", "divf: decimal division by 0"),
        ("{{addf `inf`}}", "addf: Cannot create a Decimal from +Inf"),
        ("{{urldecode `%zz`}}", 'urldecode: invalid URL escape "%zz"'),
        ("{{regexReplaceAll `(` `x` `y`}}", "regexReplaceAll: error parsing regexp: missing closing ): `(`"),
        (
            "{{regexReplaceAllLiteral `*` `x` `y`}}",
            "regexReplaceAllLiteral: error parsing regexp: missing argument to repetition operator: `*`",
        ),
        ("{{count `a)` `x`}}", "count: error parsing regexp: unexpected ): `a)`"),
        ("{{count .raw `x`}}", "count: error parsing regexp: invalid UTF-8: `\udcffb`"),
        (
            "{{unixToTime `abc`}}",
            "unixToTime: unable to parse time 'abc': strconv.ParseInt: parsing \"abc\": invalid syntax",
        ),
        ("{{unixToTime `123`}}", "unixToTime: unable to parse time '123': %!w(<nil>)"),
        (
            "{{unixToTime `99999999999999999999`}}",
            "unixToTime: unable to parse time '99999999999999999999': "
            'strconv.ParseInt: parsing "99999999999999999999": value out of range',
        ),
    ],
)
def test_failures(text: str, words: str) -> None:
    assert failure(text) == words


def test_there_are_all_functions() -> None:
    """Those that log queries add, bytes and durations, are tested beside them."""
    assert len(TEMPLATE_FUNCTIONS) == 64
