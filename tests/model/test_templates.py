"""Templates as Go's text/template has them: constructs, values, errors in Go's words, and limits."""

from __future__ import annotations

import pytest

from lakerunner.model.errors import TooLarge
from lakerunner.model.templates.limits import MAX_CHARACTERS, MAX_DEPTH, MAX_STEPS
from lakerunner.model.templates.template import TemplateError, compile_template
from lakerunner.model.templates.template_functions import TEMPLATE_FUNCTIONS

LABELS = {
    "host": "web-1",
    "level": "warn",
    "empty": "",
    "city": "Zürich",
    "json": '{"id": 7, "tags": ["a", 2.5, null, true], "user": {"name": "kim", "mail": null}}',
}
TIME_NS = 1_600_000_000_123_000_000
NOW_NS = 1_650_000_000_000_000_000


def render(text: str) -> str:
    return compile_template(text, TEMPLATE_FUNCTIONS, name="t").render(LABELS, "GET /a 200", TIME_NS, NOW_NS)


def failure(text: str) -> str:
    with pytest.raises(TemplateError) as raised:
        render(text)
    return str(raised.value)


@pytest.mark.parametrize(
    ("text", "output"),
    [
        ("", ""),
        ("no action } {", "no action } {"),
        ("{{.host}}/{{.level}}", "web-1/warn"),
        ("[{{.absent}}]", "[]"),  # as missingkey=zero
        ("{{ __line__ }}", "GET /a 200"),
        ("{{.}}", f"map[city:Zürich empty: host:web-1 json:{LABELS['json']} level:warn]"),
        ("{{$.host}}", "web-1"),
        # literals
        (r'{{"a\tb\x41\u00e9\101"}}{{`c\n`}}', "a\tbAéAc\\n"),
        ("{{'x'}} {{0x1F}} {{0b11}} {{0o17}} {{1_000}} {{-3}} {{+4}}", "120 31 3 15 1000 -3 4"),
        ("{{1.5}} {{.5}} {{1e3}} {{1e6}} {{1234567.0}} {{0x1p4}} {{1e-5}}", "1.5 0.5 1000 1e+06 1.234567e+06 16 1e-05"),
        ("{{2i}} {{1+2i}} {{true}} {{false}}", "(0+2i) (1+2i) true false"),
        # blanks, trim markers and comments
        ("a  {{- .host -}}  b", "aweb-1b"),
        ("a {{- 3}}{{-3}}{{3 -}} b", "a3-33b"),
        ("x{{/* no */}}y {{- /* no */ -}} z", "xyz"),
        ("{{ .host\n}}", "web-1"),
        # conditions
        ("{{if .host}}a{{end}}{{if .empty}}b{{end}}", "a"),
        ("{{if .empty}}a{{else}}b{{end}}", "b"),
        ("{{if .empty}}a{{else if .absent}}b{{else if .host}}c{{else}}d{{end}}", "c"),
        ("{{if 0}}a{{else if 0.0}}b{{else if false}}c{{else}}d{{end}}", "d"),
        ("{{if __timestamp__}}a{{end}}", "a"),
        ("{{with .host}}{{.}}:{{$.level}}{{end}}", "web-1:warn"),
        ("{{with .empty}}a{{else}}b{{end}}", "b"),
        ("{{with .empty}}a{{else with .level}}{{.}}{{end}}", "warn"),
        ("{{with $x := .host}}{{$x}}{{end}}", "web-1"),
        # loops
        ("{{range 3}}{{.}},{{end}}", "0,1,2,"),
        ("{{range $i := 2}}{{$i}}{{end}}", "01"),
        ("{{range 0}}a{{else}}none{{end}}", "none"),
        ("{{range fromJson `null`}}a{{else}}none{{end}}", "none"),
        ("{{range (fromJson .json).tags}}<{{.}}>{{end}}", "<a><2.5><<no value>><true>"),
        ("{{range $i, $tag := (fromJson .json).tags}}{{$i}}{{$tag}} {{end}}", "0a 12.5 2<no value> 3true "),
        ("{{range $key, $value := .}}{{$key}} {{end}}", "city empty host json level "),
        ("{{range 5}}{{if eq . 3}}{{break}}{{end}}{{.}}{{end}}", "012"),
        ("{{range 5}}{{if eq . 3}}{{continue}}{{end}}{{.}}{{end}}", "0124"),
        ("{{range 2}}{{range 3}}{{if eq . 1}}{{break}}{{end}}{{.}}{{end}};{{end}}", "0;0;"),
        # variables
        ("{{$x := 1}}{{$x}}{{$x = 2}}{{$x}}", "12"),
        ("{{$x := 1}}{{range 3}}{{$x := 9}}{{end}}{{$x}}", "1"),
        ("{{$x := 1}}{{range 3}}{{$x = add $x 2}}{{end}}{{$x}}", "7"),
        ("{{$x := fromJson .json}}{{$x.user.name}}", "kim"),
        ("{{$i := 5}}{{range $i = 3}}{{end}}{{$i}}", "2"),
        # pipelines
        ("{{.host | }}", "web-1"),
        ("{{.host | upper | printf `%s-%s` .level}}", "warn-WEB-1"),
        ("{{printf `%d` (len .host)}}", "5"),
        ("{{(fromJson .json).id}} {{(fromJson .json).user.name}} {{(fromJson .json).none}}", "7 kim <no value>"),
        ("{{__timestamp__.Year}} {{(now).Month}} {{now.Weekday}}", "2020 April Friday"),
        ('{{now.Format "Jan 2"}} {{"2006" | now.Format}}', "Apr 15 2022"),
        # templates
        ('{{define "a"}}<{{.}}>{{end}}{{template "a" .host}}{{template "a"}}', "<web-1><<no value>>"),
        ('{{block "b" .level}}[{{.}}]{{end}}', "[warn]"),
        ('{{define "a"}}{{$.level}}{{end}}{{template "a" .}}', "warn"),
        ('{{define "n"}}{{.}}{{if gt . 0}}{{template "n" (sub . 1)}}{{end}}{{end}}{{template "n" 3}}', "3210"),
    ],
)
def test_output(text: str, output: str) -> None:
    assert render(text) == output


@pytest.mark.parametrize(
    ("text", "output"),
    [
        ("{{eq .host `web-1`}} {{eq 1 2 3 1}} {{ne 1 2}} {{eq .host nil}} {{eq nil nil}}", "true true true false true"),
        ("{{lt 1 2}} {{le 2 2}} {{gt 1.5 2.5}} {{ge `b` `a`}} {{lt `é` `z`}}", "true true false true false"),
        ("{{and 1 0 2}} {{and 1 2}} {{or 0 `` `x`}} {{or 0 ``}}|{{not 1}} {{.host | and true}}", "0 2 x |false web-1"),
        ("{{index . `host`}} {{index (fromJson .json) `tags` 1}} {{index .host 0}}", "web-1 2.5 119"),
        ("{{index . `none`}}|{{index (fromJson .json) `none`}}", "|<no value>"),
        ("{{slice .host 1}} {{slice .host 1 3}} {{slice .city 0 3}} {{slice .host}}", "eb-1 eb Zü web-1"),
        ("{{slice (fromJson .json).tags 0 2}}", "[a 2.5]"),
        ("{{len .host}} {{len .city}} {{len .}} {{len (fromJson .json).tags}}", "5 7 5 4"),
        ("{{print 1 2}} {{print `a` 1 2 `b`}} {{print nil}} {{println `a` 1}}", "1 2 a1 2b <nil> a 1\n"),
        (
            "{{html `<a href='x'>&`}} {{js `it's <b>=`}} {{urlquery `a b&c`}}",
            r"&lt;a href=&#39;x&#39;&gt;&amp; it\'s \u003Cb\u003E\u003D a+b%26c",
        ),
        ("{{js `é` (printf `%c` 10)}}", r"é\u000A"),
    ],
)
def test_functions_of_every_template(text: str, output: str) -> None:
    assert render(text) == output


def test_bytes_that_are_not_utf8_are_kept() -> None:
    template = compile_template("{{.x}} {{len .x}} {{slice .x 1 2}}", TEMPLATE_FUNCTIONS)
    assert template.render({"x": "a\udcffb"}, "", 0, 0) == "a\udcffb 3 \udcff"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{{.host.name}}", '1:7: executing "t" at <.host.name>: can\'t evaluate field name in type string'),
        ("{{(fromJson .json).user.mail.x}}", '1:12: executing "t" at <.json>: nil pointer evaluating interface {}.x'),
        (
            "{{range fromJson .json}}{{.x}}{{end}}",
            '1:26: executing "t" at <.x>: can\'t evaluate field x in type interface {}',
        ),
        ("é\né{{.host.x}}", '2:9: executing "t" at <.host.x>: can\'t evaluate field x in type string'),
        ("{{upper}}", '1:2: executing "t" at <upper>: wrong number of args for upper: want 1 got 0'),
        ("{{.host | replace `a`}}", '1:10: executing "t" at <replace>: wrong number of args for replace: want 3 got 2'),
        ("{{round 1}}", '1:2: executing "t" at <round>: wrong number of args for round: want at least 2 got 1'),
        ("{{upper 5}}", '1:8: executing "t" at <5>: expected string; found 5'),
        ("{{repeat `x` 1}}", '1:9: executing "t" at <`x`>: expected integer; found `x`'),
        ("{{repeat 1.5 `x`}}", '1:9: executing "t" at <1.5>: expected integer; found 1.5'),
        ("{{repeat nil `x`}}", '1:9: executing "t" at <nil>: cannot assign nil to int'),
        ("{{repeat (add 1 2) `x`}}", '1:16: executing "t" at <2>: wrong type for value; expected int; got int64'),
        ("{{round 1.5 0 `x`}}", '1:14: executing "t" at <`x`>: expected float; found `x`'),
        ("{{upper (len .host)}}", '1:13: executing "t" at <.host>: wrong type for value; expected string; got int'),
        ("{{fromJson `null` | upper}}", '1:20: executing "t" at <upper>: invalid value; expected string'),
        ("{{unixEpoch 5}}", '1:12: executing "t" at <5>: can\'t handle 5 for arg of type time.Time'),
        ("{{unixEpoch .host}}", '1:12: executing "t" at <.host>: wrong type for value; expected time.Time; got string'),
        (
            "{{lt 1 2.5}}",
            '1:2: executing "t" at <lt 1 2.5>: error calling lt: incompatible types for comparison: int and float64',
        ),
        ("{{eq 1}}", '1:2: executing "t" at <eq 1>: error calling eq: missing argument for comparison'),
        ("{{lt true false}}", '1:2: executing "t" at <lt true false>: error calling lt: invalid type for comparison'),
        ("{{eq . .}}", '1:2: executing "t" at <eq . .>: error calling eq: non-comparable type map'),
        ("{{index .host 9}}", '1:2: executing "t" at <index .host 9>: error calling index: index out of range: 9'),
        (
            "{{index . 1}}",
            '1:2: executing "t" at <index . 1>: error calling index: value has type int; should be string',
        ),
        ("{{index nil 1}}", '1:2: executing "t" at <index nil 1>: error calling index: index of untyped nil'),
        (
            "{{slice .host 3 1}}",
            '1:2: executing "t" at <slice .host 3 1>: error calling slice: invalid slice index: 3 > 1',
        ),
        ("{{slice 5}}", '1:2: executing "t" at <slice 5>: error calling slice: can\'t slice item of type int'),
        ("{{len 5}}", '1:2: executing "t" at <len 5>: error calling len: len of type int'),
        ("{{call .host}}", '1:2: executing "t" at <call .host>: error calling call: non-function .host of type string'),
        ("{{nil}}", '1:2: executing "t" at <nil>: nil is not a command'),
        ("{{`x` 5}}", '1:2: executing "t" at <`x`>: can\'t give argument to non-function `x`'),
        ("{{(1) 2}}", '1:2: executing "t" at <(1) 2>: can\'t give argument to non-function 1'),
        ("{{.host 5}}", '1:2: executing "t" at <.host>: host is not a method but has arguments'),
        ("{{range .host}}{{end}}", '1:8: executing "t" at <.host>: range can\'t iterate over web-1'),
        (
            "{{range $i, $e := 3}}{{end}}",
            '1:18: executing "t" at <3>: can\'t use 3 to iterate over more than one variable',
        ),
        ("{{$x = 1}}", '1:7: executing "t" at <1>: undefined variable: $x'),
        ("{{if 0}}{{$x := 1}}{{else}}{{$x}}{{end}}", '1:29: executing "t" at <$x>: undefined variable: $x'),
        ('{{template "none"}}', '1:11: executing "t" at <{{template "none"}}>: template "none" not defined'),
        ('{{define "d"}}{{upper 5}}{{end}}{{template "d"}}', '1:22: executing "d" at <5>: expected string; found 5'),
        ("{{now.Foo}}", '1:2: executing "t" at <now>: can\'t evaluate field Foo in type time.Time'),
        (
            "{{add 9223372036854775808}}",
            '1:6: executing "t" at <9223372036854775808>: 9223372036854775808 overflows int',
        ),
    ],
)
def test_failures_while_rendering(text: str, words: str) -> None:
    assert failure(text).startswith(f"template: t:{words}")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{{.host", "1: unclosed action"),
        ("{{.host\n\n", "3: unclosed action started at t:1"),
        ("{{`a", "1: unterminated raw quoted string"),
        ('{{"a}}', "1: unterminated quoted string"),
        ("{{'a}}", "1: unterminated character constant"),
        (r'{{"\z"}}', "1: invalid syntax"),
        ("{{''}}", "1: invalid syntax"),
        ("{{'ab'}}", "1: malformed character constant: 'ab'"),
        ("{{1x}}", '1: bad number syntax: "1x"'),
        ("{{0x}}", '1: illegal number syntax: "0x"'),
        ("{{100000000000000000000}}", '1: integer overflow: "100000000000000000000"'),
        ("{{nosuch .host}}", '1: function "nosuch" not defined'),
        ("{{$x}}", '1: undefined variable "$x"'),
        ("{{}}", "1: missing value for command"),
        ("{{if}}x{{end}}", "1: missing value for if"),
        ("{{if .host}}x", "1: unexpected EOF"),
        ("{{end}}", "1: unexpected {{end}}"),
        ("{{else}}", "1: unexpected {{else}}"),
        ("{{if .host}}{{else}}{{else}}{{end}}", "1: expected end; found {{else}}"),
        ("{{(.host}}", "1: unclosed left paren"),
        ("{{.host)}}", "1: unexpected right paren"),
        ("{{| .host}}", '1: unexpected "|" in command'),
        ("{{1 | 2}}", "1: non executable command in pipeline stage 2"),
        ("{{true.x}}", '1: unexpected . after term "true"'),
        ("{{$a, $b := .}}", "1: too many declarations in command"),
        ("{{range $a, 5}}{{end}}", "1: range can only initialize variables"),
        ("{{break}}", "1: {{break}} outside {{range}}"),
        ("{{range 1}}{{continue 1}}{{end}}", '1: unexpected "1" in {{continue}}'),
        ("{{template foo}}", '1: unexpected "foo" in template clause'),
        ('{{define "x"}}a{{end}}{{define "x"}}b{{end}}', '1: template: multiple definition of template "x"'),
        ('{{if 1}}{{define "x"}}{{end}}{{end}}', "1: unexpected <define> in command"),
        ("{{:}}", "1: expected :="),
        ("{{.a-b}}", "1: bad character U+002D '-'"),
        ("{{€}}", "1: unrecognized character in action: U+20AC '€'"),
        ("{{/* a }}", "1: unclosed comment"),
        ("{{/* a */ }}", "1: comment ends before closing delimiter"),
        ("\n{{.host longer_than_ten_letters}}", '2: function "longer_than_ten_letters" not defined'),
        ('{{end "longer than ten"}}', '1: unexpected "\\"longer th"... in end'),
    ],
)
def test_texts_that_are_no_templates(text: str, words: str) -> None:
    with pytest.raises(TemplateError) as raised:
        compile_template(text, TEMPLATE_FUNCTIONS, name="t")
    assert str(raised.value) == f"template: t:{words}"


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("{{.a}} {{.b}} {{.a}}", ("a", "b")),
        ("{{.a | upper | printf .c}}{{if .d}}{{.e}}{{else}}{{.f}}{{end}}", ("a", "c", "d", "e", "f")),
        ("{{range .a}}{{.b}}{{end}}{{with .c.d}}{{end}}{{upper (lower .e)}}", ("a", "b", "c", "d", "e")),
        ("{{$.a}}{{(fromJson .b).c}}text", ()),
    ],
)
def test_field_names(text: str, names: tuple[str, ...]) -> None:
    assert compile_template(text, TEMPLATE_FUNCTIONS).field_names == names


def test_a_template_that_is_one_field() -> None:
    def only(text: str) -> str | None:
        return compile_template(text, TEMPLATE_FUNCTIONS).only_field

    assert only("{{.a}}") == "a"
    assert [only(text) for text in ("{{.a.b}}", "{{.a}} ", "{{.a | upper}}", "{{upper .a}}", "a", "")] == [None] * 6


# ---- limits


def test_a_loop_runs_up_to_the_limit_of_steps() -> None:
    turns = MAX_STEPS // 2  # the loop and the text
    assert render(f"{{{{range {turns}}}}}x{{{{end}}}}") == "x" * turns
    with pytest.raises(TooLarge, match=f"more than {MAX_STEPS} steps"):
        render(f"{{{{range {turns + 1}}}}}x{{{{end}}}}")


def test_nested_loops_share_the_limit_of_steps() -> None:
    with pytest.raises(TooLarge, match="steps"):
        render("{{range 1000}}{{range 1000}}{{range 1000}}{{end}}{{end}}{{end}}")


def test_long_texts_in_a_loop_take_more_steps() -> None:
    text = '{{$x := repeat 1000000 "a"}}{{range 1000}}{{$y := regexReplaceAll "b" $x "c"}}{{end}}'
    with pytest.raises(TooLarge, match="steps"):
        render(text)


def test_output_ends_at_its_limit() -> None:
    assert len(render(f'{{{{repeat {MAX_CHARACTERS} "x"}}}}')) == MAX_CHARACTERS
    with pytest.raises(TooLarge, match=f"more than {MAX_CHARACTERS} characters"):
        render(f'{{{{repeat {MAX_CHARACTERS} "x"}}}}y')


@pytest.mark.parametrize(
    "text",
    [
        '{{repeat 1000000000 "x"}}',
        '{{alignLeft 1000000000 "x"}}',
        '{{alignRight 1000000000 "x"}}',
        '{{indent 1000000000 "x"}}',
        '{{replace "" (repeat 10000 "x") (repeat 10000 "y")}}',
        '{{regexReplaceAll "y" (repeat 10000 "y") (repeat 10000 "x")}}',
        '{{$x := "xx"}}{{range 100}}{{$x = print $x $x}}{{end}}',
        '{{$x := repeat 1000000 "x"}}{{printf "%[1]s%[1]s%[1]s%[1]s%[1]s%[1]s" $x}}',
        '{{range 4000}}{{printf "%1000000d" 1}}{{end}}',
    ],
)
def test_no_text_on_the_way_is_longer_than_the_limit(text: str) -> None:
    with pytest.raises(TooLarge):
        render(text)


def test_templates_call_each_other_up_to_a_depth() -> None:
    recursive = '{{define "r"}}{{if gt . 1}}{{template "r" (sub . 1)}}{{end}}{{end}}{{template "r" %d}}'
    assert render(recursive % MAX_DEPTH) == ""
    with pytest.raises(TooLarge, match=f"more than {MAX_DEPTH} deep"):
        render(recursive % (MAX_DEPTH + 1))


def test_blocks_and_parentheses_are_nested_up_to_a_depth() -> None:
    def nested(start: str, end: str, depth: int) -> str:
        return start * depth + end * depth

    assert render(nested("{{if 1}}", "{{end}}", MAX_DEPTH)) == ""
    assert render("{{" + nested("(len ", ")", 1).replace("len ", "len .host") + "}}") == "5"
    for text in (
        nested("{{if 1}}", "{{end}}", MAX_DEPTH + 1),
        "{{" + "(" * (MAX_DEPTH + 1) + "1" + ")" * (MAX_DEPTH + 1) + "}}",
        "{{if 0}}" + "{{else if 0}}" * (MAX_DEPTH + 1) + "{{end}}",
    ):
        assert failure(text) == "template: t:1: max expression depth exceeded"
