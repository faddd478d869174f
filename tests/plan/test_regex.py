"""Regular expressions as RE2 reads them."""

from __future__ import annotations

import pytest

from lakerunner.model.errors import UserError
from lakerunner.plan.vectors.regex import MAX_NESTING, capturing, compiled
from lakerunner.plan.vectors.regex_classes import _CASED


@pytest.mark.parametrize(
    ("pattern", "matching", "others"),
    [
        ("foo|bar", ["foo", "bar"], ["foobar", "xfoo", "foo\n"]),
        ("", [""], ["a"]),
        ("a.c", ["abc", "a\nc"], ["ac"]),
        ("(?-s)a.c", ["abc"], ["a\nc"]),
        (r"\d+", ["12"], ["١٢", ""]),
        (r"\w", ["a", "_"], ["é"]),
        (r"\s", ["\t", "\f"], ["\v", "\u00a0"]),
        (r"[\W]", ["é"], ["a"]),
        ("[^a]", ["b", "\n"], ["a"]),
        ("[[:alpha:]-]", ["x", "-"], ["é", "1"]),
        ("[[:^digit:]]", ["x"], ["1"]),
        ("[]a]", ["]", "a"], ["[]a]"]),
        ("a{,2}", ["a{,2}"], ["", "aa"]),
        ("a{2}", ["aa"], ["a"]),
        ("x{", ["x{"], ["x"]),
        ("(?i)k", ["k", "K", "\u212a"], ["\u212b"]),
        ("(?i)i", ["i", "I"], ["\u0130", "\u0131"]),
        ("(?i)[a-z]", ["S", "\u017f"], ["é"]),
        ("(?i)É", ["é"], ["e"]),
        ("a(?i)b", ["aB"], ["AB"]),
        ("(?:a(?i))b", ["ab"], ["aB"]),
        ("(?i:a)b", ["Ab"], ["AB"]),
        ("^a$", ["a"], ["a\n"]),
        ("(?m)a$\n^b", ["a\nb"], ["ab"]),
        (r"\Aa\z", ["a"], ["a\n"]),
        (r"a\b.*", ["a", "a b", "aé"], ["ab"]),
        (r"\B", [""], ["a"]),
        (r"\x41\x{e9}\101\n", ["AéA\n"], ["A"]),
        (r"\Qa.b*\E+", ["a.b*", "a.b**"], ["axb"]),
        (r"\.\-\_", [".-_"], ["..."]),
        ("(?P<x>a)|(?<y>b)", ["a", "b"], ["c"]),
        ("^*a", ["a"], ["*a"]),
    ],
)
def test_values(pattern: str, matching: list[str], others: list[str]) -> None:
    for value in matching:
        assert compiled(pattern).fullmatch(value), value
        assert capturing(pattern).fullmatch(value), value
    for value in others:
        assert not compiled(pattern).fullmatch(value), value


@pytest.mark.parametrize(
    ("pattern", "reason"),
    [
        ("a**", "invalid nested repetition operator"),
        ("a++", "invalid nested repetition operator"),
        ("*a", "missing argument to repetition operator"),
        ("(a", "missing closing )"),
        ("a)", "unexpected )"),
        ("[a", "missing closing ]"),
        ("[b-a]", "invalid character class range"),
        ("[[:nosuch:]]", "invalid character class range"),
        (r"(a)\1", "invalid escape sequence"),
        (r"\Z", "invalid escape sequence"),
        (r"\C", "invalid escape sequence"),
        ("\\", "trailing backslash"),
        (r"\pL", "classes by Unicode property are not supported"),
        ("(?=a)", "invalid or unsupported Perl syntax"),
        ("(?<=a)", "invalid or unsupported Perl syntax"),
        ("(?>a)", "invalid or unsupported Perl syntax"),
        ("(?P=a)", "invalid or unsupported Perl syntax"),
        ("(?x)a", "invalid or unsupported Perl syntax"),
        ("(?P<n>a)(?P<n>b)", "invalid named capture"),
        ("a{1001}", "invalid repeat count"),
        ("a{2,1}", "invalid repeat count"),
        ("(a{100}){100}", "invalid repeat count"),
        ("(" * MAX_NESTING + "a" + ")" * MAX_NESTING, "groups inside each other"),
    ],
)
def test_what_is_no_pattern_is_refused_with_the_reason(pattern: str, reason: str) -> None:
    with pytest.raises(UserError) as raised:
        compiled(pattern)
    assert raised.value.message.startswith("error parsing regexp: ")
    assert reason in raised.value.message


@pytest.mark.parametrize(
    ("pattern", "value"),
    [
        ("(a*)*b", "a" * 300),
        ("(a|a)*b", "a" * 300),
        ("(a|aa)+c", "a" * 300),
        ("(a?){30}a{30}", "a" * 29),
        (".*a.*b.*c.*d.*e", "x" * 300),
        ("(a{1,10}){1,90}b", "a" * 300),
    ],
)
def test_no_pattern_takes_long(pattern: str, value: str) -> None:
    assert compiled(pattern).fullmatch(value) is None


def test_all_ways_at_once() -> None:
    for pattern, value, expected in (
        ("(a*)*b", "aaab", True),
        ("(a|ab)*(?i)C", "aababc", True),
        (r"(.*)*\bfoo$", "a foo", True),
        (r"(.*)*\bfoo$", "afoo", False),
        ("(a|b|ab){2,3}.*.*.*", "ab", True),
        ("(a|b|ab){3}.*.*.*.*", "ab", False),
    ):
        assert (compiled(pattern).fullmatch(value) is not None) is expected, (pattern, value)


def test_groups() -> None:
    found = capturing("(?P<service>.*?)-(\\w+)(x)?").fullmatch("a-b-c")
    assert found is not None
    assert found.groups() == ("a-b", "c", None)
    assert found["service"] == "a-b"
    with pytest.raises(UserError, match="finding its groups could take exponential time"):
        capturing("((a*)*)b")


def test_many_alternatives() -> None:
    pattern = "|".join(f"pod-{number}" for number in range(3000))
    assert compiled(pattern).fullmatch("pod-2999")
    assert not compiled(pattern).fullmatch("pod-3000")


def test_cased_characters_are_where_we_look_for_them() -> None:
    edges = [0, *(edge for block in _CASED for edge in block), 0x110000]
    outside = "".join(chr(code) for low, high in zip(edges[::2], edges[1::2], strict=True) for code in range(low, high))
    assert outside.casefold() == outside
    assert outside.lower() == outside
