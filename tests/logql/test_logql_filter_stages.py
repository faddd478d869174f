"""Line filters, label filters, drop, keep and decolorize on single lines, and the order in which they run."""

from __future__ import annotations

import pytest

from lakerunner.model.errors import UserError
from logql.line_runs import is_kept, labels_after, run_stages

ERROR, DETAILS = "__error__", "__error_details__"


@pytest.mark.parametrize(
    ("stages", "kept"),
    [
        ('|= "b"', ["abc"]),
        ('!= "b"', ["xyz", ""]),
        ('|= "a" or "x"', ["abc", "xyz"]),
        ('!= "a" or "x"', [""]),
        ('|= ""', ["abc", "xyz", ""]),
        ('|= "" or "x"', ["xyz"]),  # Loki drops what every line has
        ('!= ""', []),
        ('|~ "^a.c$"', ["abc"]),
        ('|~ "B"', []),
        ('|~ "(?i)B"', ["abc"]),
        ('!~ "b|y"', [""]),
        ('|~ ".+"', ["abc", "xyz"]),
        ('|~ "x" or "c$"', ["abc", "xyz"]),
        ('|> "a<_>"', ["abc"]),
        ('|> "<_>c"', ["abc"]),
        ('|> "<_>b<_>"', ["abc"]),
        ('|> "abc<_>"', []),  # no capture is empty
        ('|> "b<_>"', ["abc"]),  # as in Loki: a literal may start later
        ('!> "a<_>"', ["xyz", ""]),
        ('|> ""', [""]),
    ],
)
def test_line_filters(stages: str, kept: list[str]) -> None:
    assert [line for line in ("abc", "xyz", "") if is_kept(stages, line)] == kept


def test_a_dot_of_a_line_filter_is_no_newline() -> None:
    assert not is_kept('|~ "a.b"', "a\nb")
    assert is_kept('|~ "(?s)a.b"', "a\nb")


@pytest.mark.parametrize(
    ("stage", "words"),
    [
        ('|~ "("', "error parsing regexp: missing closing )"),
        ('|> "<a> x"', "named captures are not allowed: found '<a>'"),
        ('|> "<_><_>"', "found consecutive capture '<_><_>': invalid expression"),
        ('|= ip("x")', 'ip: invalid pattern: "x"'),
        ('|= ip("10.0.0.9-10.0.0.1")', "ip: invalid pattern"),
        ('|= ip("10.0.0.0/33")', "ip: invalid pattern"),
        ('|= ip("10.0.0.0/255.0.0.0")', "ip: invalid pattern"),
        ('| addr = ip("x")', 'ip: invalid pattern: "x"'),
    ],
)
def test_wrong_filters(stage: str, words: str) -> None:
    with pytest.raises(UserError) as raised:
        run_stages(stage, "")
    assert words in raised.value.message


@pytest.mark.parametrize(
    ("pattern", "line", "kept"),
    [
        ("10.0.0.0/8", "from 10.1.2.3:80", True),
        ("10.0.0.0/8", "from 11.1.2.3", False),
        ("10.0.0.1-10.0.0.9", "10.0.0.9", True),
        ("10.0.0.1-10.0.0.9", "10.0.0.10", False),
        ("10.0.0.1", "10.0.0.01 and 10.0.0.1", True),
        ("10.0.0.1", "10.0.0.01", False),  # a leading zero is no address
        ("10.0.0.1", "1.10.0.0.1", False),
        ("::1", "from ::1 to", True),
        ("::1", "from ::1", False),  # too near to the end for Loki
        ("2001:db8::/32", "[2001:db8::7]:80", True),
        ("2001:db8::/32", "2001:db9::7 x", False),
        ("10.0.0.0/8", "::ffff:10.0.0.1 ok", False),
    ],
)
def test_addresses_in_lines(pattern: str, line: str, kept: bool) -> None:
    assert is_kept(f'|= ip("{pattern}")', line) is kept
    assert is_kept(f'!= ip("{pattern}")', line) is not kept


@pytest.mark.parametrize(
    ("stage", "kept"),
    [
        ('x="1"', True),
        ('x!="1"', False),
        ('x=~"1|2"', True),
        ('x=~"."', True),
        ('text=~"wor"', False),  # the whole value
        ('text=~"two.words"', False),  # a dot is no newline
        ('text=~".*"', True),
        ('missing=""', True),
        ('missing!=""', False),
        ('missing=~".*"', True),
        ('missing=~".+"', False),
        ('missing=~"x*"', True),
        ("x==1", True),
        ("x>1", False),
        ("x>=1", True),
        ("x<2", True),
        ("x!=1", False),
        ("missing!=1", False),
        ("took>100ms", True),
        ("took<=1.5s", True),
        ("took<1500ms", False),
        ("size>=1KiB", True),
        ("size<1024B", False),
        ('addr=ip("10.0.0.0/8")', True),
        ('addr!=ip("10.0.0.0/8")', False),
        ('missing!=ip("10.0.0.0/8")', False),
        ('x="1" and took>1s', True),
        ('x="2" or took>1s', True),
        ('x="2" or (took>1s, size>1MB)', False),
        ('x="1" size>1KB', True),
        ('x="1" and addr=ip("nonsense")', False),
    ],
)
def test_label_filters(stage: str, kept: bool) -> None:
    labels = {"x": "1", "text": "two\nwords", "took": "1.5s", "size": "1KiB", "addr": "10.1.2.3"}
    assert is_kept(f"| {stage}", "line", labels) is kept


@pytest.mark.parametrize(
    ("stage", "details"),
    [
        ("x>1", 'strconv.ParseFloat: parsing "word": invalid syntax'),
        ("x>1s", 'time: invalid duration "word"'),
        ("x>1KB", 'strconv.ParseFloat: parsing "": invalid syntax'),
    ],
)
def test_a_value_that_is_no_amount_keeps_its_line(stage: str, details: str) -> None:
    assert run_stages(f"| {stage}", "line", {"x": "word"}) == (
        "line",
        {"x": "word", ERROR: "LabelFilterErr", DETAILS: details},
    )


def test_an_error_is_not_overwritten_by_a_label_filter() -> None:
    found = labels_after("| json | x > 1", "no json", {"x": "word"})
    assert found[ERROR] == "JSONParserErr"


def test_both_sides_of_and_are_looked_at() -> None:
    kept, labels = run_stages('| (a="no" and x > 1) or a="yes"', "line", {"a": "yes", "x": "word"})
    assert (kept, labels[ERROR]) == ("line", "LabelFilterErr")
    assert ERROR not in labels_after('| a="yes" or x > 1', "line", {"a": "yes", "x": "word"})


def test_filters_of_errors() -> None:
    assert is_kept('| json | __error__=""', '{"a":1}')
    assert not is_kept('| json | __error__=""', "text")
    assert is_kept('| json | __error__="JSONParserErr"', "text")
    assert is_kept('| json | __error_details__=""', "text")  # details are no label there
    assert is_kept('| json | addr=ip("10.0.0.1")', "text")  # only texts filter lines with errors


def test_drop() -> None:
    stream, metadata = {"a": "1", "b": "2"}, {"m": "3"}
    assert labels_after("| drop a, m, none", "", stream, metadata) == {"b": "2"}
    assert labels_after('| drop a="1", b="1"', "", stream, metadata) == {"b": "2", "m": "3"}
    assert labels_after('| drop a=~".", b!="2"', "", {"a": "\n", "b": "2"}) == {"b": "2"}  # a dot is a newline too


def test_drop_of_errors() -> None:
    details = "Value looks like object, but can't find closing '}' symbol"
    assert labels_after("| json | drop __error__, __error_details__", "x", {"a": "1"}) == {"a": "1"}
    assert labels_after("| json | drop __error__", "x", {"a": "1"}) == {"a": "1"}  # nothing else changed
    assert labels_after("| json | drop __error__", "x", {}, {"m": "1"}) == {"m": "1", DETAILS: details}
    assert labels_after('| json | drop __error__="other"', "x")[ERROR] == "JSONParserErr"
    assert ERROR not in labels_after('| json | drop __error__=~"JSON.*"', "x")


def test_keep() -> None:
    stream, metadata = {"a": "1", "b": "2"}, {"m": "3"}
    assert labels_after("| keep a, m", "", stream, metadata) == {"a": "1", "m": "3"}
    assert labels_after('| keep a="1", b="1"', "", stream, metadata) == {"a": "1"}
    kept = labels_after("| json | keep a", "x", stream)
    assert (kept["a"], kept[ERROR], "b" in kept) == ("1", "JSONParserErr", False)


@pytest.mark.parametrize(
    ("line", "plain"),
    [
        ("\x1b[31mred\x1b[0m and \x1b[1;32mgreen\x1b[m", "red and green"),
        ("\x9b4mline", "line"),
        ("\x1b]0;title\x07text", "text"),
        ("no colour", "no colour"),
    ],
)
def test_decolorize(line: str, plain: str) -> None:
    assert run_stages("| decolorize", line)[0] == plain


def test_line_filters_run_before_other_stages() -> None:
    # A filter on the line moves before json, so that the line it drops has no error; not before a filter of labels.
    kept, labels = run_stages('| json |= "q"', "text")
    assert (kept, labels) == (None, {})
    kept, labels = run_stages('| json | a="" |= "q"', "text")
    assert (kept, labels[ERROR]) == (None, "JSONParserErr")


def test_line_filters_stay_behind_unpack_and_move_before_decolorize() -> None:
    packed = '{"_entry":"inner"}'
    assert is_kept('| unpack |= "inner" != "_entry"', packed)
    assert not is_kept('|= "inner" != "_entry" | unpack', packed)
    assert not is_kept('| decolorize |= "ab"', "a\x1b[31mb")
    assert is_kept('| line_format "made" |= "made"', "line")
    assert not is_kept('| label_format x="y" |= "made" | line_format "made"', "line")
