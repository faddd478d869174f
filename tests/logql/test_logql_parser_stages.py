"""json, logfmt, regexp, pattern and unpack on single lines: values, names, faults, collisions."""

from __future__ import annotations

import pytest

from lakerunner.logql.stages.json_parser import MAX_DEPTH
from lakerunner.model.errors import UserError
from logql.line_runs import labels_after, run_stages

ERROR, DETAILS = "__error__", "__error_details__"
NO_ARRAY_END = "Value is array, but can't find closing ']' symbol"
NO_OBJECT_END = "Value looks like object, but can't find closing '}' symbol"


@pytest.mark.parametrize(
    ("line", "labels"),
    [
        (
            '{"a":1.50,"b":-0,"c":1e5,"d":true,"e":false}',
            {"a": "1.50", "b": "-0", "c": "1e5", "d": "true", "e": "false"},
        ),
        ('{"a":null,"b":[1,{"c":2}],"d":{}}', {}),
        ('{"a":{"b":{"c":"x"},"d":2}}', {"a_b_c": "x", "a_d": "2"}),
        ('{"s":"\\ud83d\\ude00 \\u00e9\\n\\/"}', {"s": "\U0001f600 \xe9\n/"}),
        ('{"bad escape":"\\x","half":"\\ud83d"}', {"bad_escape": "", "half": ""}),
        ('{"s":"a\udcffb\ufffd"}', {"s": "a b "}),
        ('{"k\\u0041":1}', {"kA": "1"}),
        ('  {"a":1} and more', {"a": "1"}),
        ('{"a":1,}', {"a": "1"}),
        ('{"word":1abc}', {"word": "1abc"}),
        ('{"a-b":1,"a.b":2}', {"a_b": "1"}),  # the first one counts
        ('{"x":{"y":1},"x_y":2}', {"x_y": "1"}),
    ],
)
def test_json_values(line: str, labels: dict[str, str]) -> None:
    assert labels_after("| json", line) == labels


@pytest.mark.parametrize(
    ("line", "name"),
    [
        ('{" key ":1}', "key"),
        ('{"7":{"42":1}}', "_7_42"),
        ('{"outer":{"3d":1}}', "outer_3d"),
        ('{" ":{"5x":1}}', "_5x"),
        ('{"top":{"":1}}', "top"),
        ('{"up":{"  ":{"down":1}}}', "up_down"),
        ('{"\xfc":{"\u540d\u524d":1}}', "____"),
        ('{"two words":{"dot.ted":1}}', "two_words_dot_ted"),
    ],
)
def test_names_of_json_keys(line: str, name: str) -> None:
    assert labels_after("| json", line) == {name: "1"}


def test_a_blank_key_of_json_is_no_label() -> None:
    assert labels_after("| json", '{"":1," ":2}') == {}


@pytest.mark.parametrize(
    ("line", "labels", "details"),
    [
        ("text", {}, NO_OBJECT_END),
        ("", {}, NO_OBJECT_END),
        ("{", {}, "Malformed JSON error"),
        ('{"a":1', {"a": "1"}, NO_ARRAY_END),
        ('{"a":1,', {"a": "1"}, NO_ARRAY_END),
        ('{"a":1 "b":2}', {"a": "1"}, NO_OBJECT_END),
        ('{"a":{"b":1},"c":{"d":2', {"a_b": "1"}, NO_OBJECT_END),
        ('{"a" 1}', {}, "Malformed JSON error"),
        ('{"a":"b', {}, "Value is string, but can't find closing '\"' symbol"),
        ('{"a":yes}', {}, "Unknown value type"),
        ('{"\\x":1}', {}, "Encountered an invalid escape sequence in a string"),
    ],
)
def test_faults_of_json(line: str, labels: dict[str, str], details: str) -> None:
    assert labels_after("| json", line) == {**labels, ERROR: "JSONParserErr", DETAILS: details}


def test_deep_json_is_an_error_that_names_the_limit() -> None:
    deep = '{"a":' * 100_000 + "1" + "}" * 100_000
    found = labels_after("| json", deep)
    assert (found[ERROR], found[DETAILS]) == (
        "JSONParserErr",
        f"objects are nested more than {MAX_DEPTH} levels deep",
    )


@pytest.mark.parametrize(
    ("stages", "line", "labels"),
    [
        ("| json", '{"x":1}', {"x": "s", "x_extracted": "1"}),
        ("| json", '{" x ":1}', {"x": "s", "x_extracted": "1"}),
        ("| json", '{"x":{"":1}}', {"x": "s", "x__extracted": "1"}),
        ("| drop x | json", '{"x":1}', {"x_extracted": "1"}),
        ('| json x="a"', '{"a":1}', {"x": "s", "x_extracted": "1"}),
        ('| json x="b"', '{"a":1}', {"x": "s"}),
        ("| logfmt", "x=1", {"x": "s", "x_extracted": "1"}),
        ('| logfmt x="a"', "a=1", {"x": "s", "x_extracted": "1"}),
        ('| regexp "(?P<x>.+)"', "1", {"x": "s", "x_extracted": "1"}),
        ('| pattern "<x>"', "1", {"x": "s", "x_extracted": "1"}),
        ("| unpack", '{"x":"1","_entry":""}', {"x": "s", "x_extracted": "1"}),
        ("| json | logfmt", '{"y":1} y=2', {"x": "s", "y": "1"}),
    ],
)
def test_a_label_of_the_stream_keeps_its_name(stages: str, line: str, labels: dict[str, str]) -> None:
    assert labels_after(stages, line, {"x": "s"}) == labels


def test_collisions_of_all_three_kinds() -> None:
    found = labels_after("| logfmt", "s=p m=p both=p", {"s": "s", "both": "s"}, {"m": "m", "both": "m"})
    assert found == {"s": "s", "s_extracted": "p", "m": "m", "m_extracted": "p", "both": "s", "both_extracted": "p"}


def test_metadata_that_was_dropped_leaves_its_name() -> None:
    assert labels_after("| drop m | json", '{"m":1}', {}, {"m": "v"}) == {"m": "1"}


def test_the_first_parser_decides_even_if_its_label_is_dropped() -> None:
    assert labels_after("| json | drop a | logfmt", '{"a":1} b=2 a=3') == {"b": "2"}


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("a.b", "1"),
        ('["a"].b', "1"),
        ("list[0]", "x"),
        ("list[1].y", '[1,"z"]'),
        ("list[1].y[1]", "z"),
        ("list[7]", ""),
        ("a", '{"b": 1}'),
        ("nothing", ""),
        ("null", ""),
        ('["a key"]', 'q"'),
    ],
)
def test_paths_of_json(path: str, value: str) -> None:
    line = '{"a":{"b": 1}, "list":["x",{"y":[1,"z"]}], "null":null, "a key":"q\\""}'
    written = path.replace('"', '\\"')
    assert labels_after(f'| json found="{written}"', line) == {"found": value}


def test_paths_of_json_in_odd_lines() -> None:
    assert labels_after('| json a="[1]"', '[1,"two"]') == {"a": "two"}
    assert labels_after('| json a="x"', '{"x":1,"x":2}') == {"a": "1"}
    assert labels_after('| json a="x",b="y"', '{"x":1,"y') == {"a": "1", "b": ""}
    assert labels_after('| json a="x"', "") == {}
    assert labels_after('| json a="x"', "x") == {ERROR: "JSONParserErr"}
    wrong = {"a": "", ERROR: "JSONParserErr", DETAILS: "Unknown value type"}
    assert labels_after('| json a="x"', '{"x":yes}') == wrong


@pytest.mark.parametrize(
    ("path", "words"),
    [
        ("a..b", "syntax error: unexpected DOT, expecting FIELD"),
        ("a[", "syntax error: unexpected $end, expecting STRING or INDEX"),
        ("a[1", "syntax error: unexpected $end, expecting STRING or INDEX"),
        ("a[1.5]", "syntax error: unexpected $end, expecting STRING or INDEX"),
        ("a b", "syntax error: unexpected FIELD"),
        ("a$", "unexpected char $"),
        ("", "syntax error: unexpected $end, expecting LSB or FIELD"),
    ],
)
def test_wrong_paths_of_json(path: str, words: str) -> None:
    with pytest.raises(UserError) as raised:
        run_stages(f'| json a="{path}"', "")
    assert f"cannot parse expression [{path}]: {words}" in raised.value.message


@pytest.mark.parametrize(
    ("stage", "line", "labels"),
    [
        ("logfmt", 'a=1 b="two words" c', {"a": "1", "b": "two words"}),
        ("logfmt --keep-empty", 'a b= c=""', {"a": "", "b": "", "c": ""}),
        ("logfmt", 'a="x\\"y\\t\\u00e9\\ud83d\\ude00"', {"a": 'x"y\t\xe9\U0001f600'}),
        ("logfmt", 'a=1 "x b=2 c==3 d="no end', {"a": "1", "b": "2"}),
        ("logfmt", "9a.b=1 \xe9=2", {"_9a_b": "1", "_": "2"}),
        ("logfmt", "a=x\udcff b\udcff=1 c=2", {"a": "x ", "c": "2"}),
        ("logfmt", "a=1 a=2", {"a": "1"}),
        ("logfmt", "", {}),
        ('logfmt b="a", c', "a=1 c=3 d=4", {"b": "1", "c": "3"}),
        ('logfmt a="b", b="a"', "a=1 b=2", {"a": "2", "b": "1"}),
        ('logfmt a="nothing"', "b=1", {"a": ""}),
        ("logfmt a", "a=1 a=2", {"a": "2"}),
        ("logfmt a", "a=x\udcff", {"a": ""}),
    ],
)
def test_logfmt(stage: str, line: str, labels: dict[str, str]) -> None:
    assert labels_after(f"| {stage}", line) == labels


@pytest.mark.parametrize(
    ("line", "labels", "fault"),
    [
        ("a=1 =2 b=3", {"a": "1"}, "pos 5 : unexpected '='"),
        ('\xe9"=1', {}, "pos 3 : unexpected '\"'"),
        ('a="x', {}, "pos 5 : unterminated quoted value"),
        ('a="\\q" b=1', {}, "pos 7 : invalid quoted value"),
        ("a\udcff=1 b=2", {}, "pos 3 : invalid key"),
    ],
)
def test_faults_of_strict_logfmt(line: str, labels: dict[str, str], fault: str) -> None:
    wanted = {**labels, ERROR: "LogfmtParserErr", DETAILS: f"logfmt syntax error at {fault}"}
    assert labels_after("| logfmt --strict", line) == wanted


def test_regexp() -> None:
    assert labels_after('| regexp "(?P<a>x)?(?P<b>y)"', "zzyy") == {"a": "", "b": "y"}
    assert labels_after('| regexp "(?P<a>.+)"', "one\ntwo") == {"a": "one"}  # a dot is no newline
    assert labels_after('| regexp "(?P<a>\\\\d+)"', "none") == {}
    assert labels_after('| regexp "(?P<a>\xe9.)b"', "\xfc\xe9\udcffb") == {"a": "\xe9\udcff"}


@pytest.mark.parametrize(
    ("pattern", "words"),
    [
        ("x", "at least one named capture must be supplied"),
        ("(x)", "at least one named capture must be supplied"),
        ("(?P<a>x)(?P<a>y)", "duplicate extracted label name 'a'"),
        ("(", "error parsing regexp: missing closing )"),
    ],
)
def test_wrong_expressions(pattern: str, words: str) -> None:
    with pytest.raises(UserError) as raised:
        run_stages(f'| regexp "{pattern}"', "")
    assert words in raised.value.message


def test_pattern() -> None:
    assert labels_after('| pattern "<a> <_> <b>"', "1 2 3 4") == {"a": "1", "b": "3 4"}
    assert labels_after('| pattern "<a> - <b>"', "no dash") == {"a": "no dash"}
    assert labels_after('| pattern "x=<a>"', "y x=1") == {}
    assert labels_after('| pattern "<a> <1b>"', "1 <1b>") == {"a": "1"}


@pytest.mark.parametrize(
    ("pattern", "words"),
    [
        ("<_>", "at least one capture is required"),
        ("<a><b>", "found consecutive capture '<a><b>': invalid expression"),
        ("<a> <a>", "duplicate capture name (a): invalid expression"),
    ],
)
def test_wrong_patterns(pattern: str, words: str) -> None:
    with pytest.raises(UserError) as raised:
        run_stages(f'| pattern "{pattern}"', "")
    assert words in raised.value.message


def test_unpack() -> None:
    assert run_stages("| unpack", '{"a":"1","b":2,"_entry":"hi\\n"}') == ("hi\n", {"a": "1"})
    assert run_stages("| unpack", '{"a":"1"}') == ('{"a":"1"}', {})
    assert run_stages("| unpack", "") == ("", {})
    assert run_stages("| unpack", '{"a.b":"1","a_b":"2","_entry":"x"}') == ("x", {"a_b": "2"})
    line, labels = run_stages("| unpack", "text")
    assert (line, labels) == (
        "text",
        {ERROR: "JSONParserErr", DETAILS: "expecting json object(6), but it is not"},
    )
    line, labels = run_stages("| unpack", '{"a":"1","_entry":"x"')
    assert (line, labels) == ('{"a":"1","_entry":"x"', {ERROR: "JSONParserErr", DETAILS: NO_ARRAY_END})
