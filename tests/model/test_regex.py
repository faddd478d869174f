"""Regular expressions as RE2 reads them."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakerunner.model.errors import TooLarge, UserError
from lakerunner.model.regex import compile_capturing, compile_regex, find_text, search_column


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
        ("(?P<1a>a)", ["a"], ["b"]),
        ("^*a", ["a"], ["*a"]),
        (r"\pL+", ["aβ"], ["a1"]),
        (r"[\p{Greek}\d]", ["β", "1"], ["b"]),
        (r"\PL", ["1"], ["β"]),
        (r"(?i)\p{Lu}", ["β"], ["1"]),
        (r"\Q(a", ["(a"], ["a"]),
        ("\\Q\\C\\", ["\\C\\"], ["a"]),
        ("(" * 60 + "a" + ")" * 60, ["a"], ["aa"]),
    ],
)
def test_values(pattern: str, matching: list[str], others: list[str]) -> None:
    """Alone, for their groups and as a column."""
    for value in matching:
        assert compile_regex(pattern).matches(value), value
        assert compile_capturing(pattern).groups(value) is not None, value
    for value in others:
        assert not compile_regex(pattern).matches(value), value
        assert compile_capturing(pattern).groups(value) is None, value
    column = compile_regex(pattern).each(pa.array(matching + others)).to_pylist()
    assert column == [True] * len(matching) + [False] * len(others)


@pytest.mark.parametrize(
    ("pattern", "reason"),
    [
        ("a**", "invalid nested repetition operator: `**`"),
        ("a++", "invalid nested repetition operator: `++`"),
        ("*a", "missing argument to repetition operator: `*`"),
        ("(a", "missing closing ): `(a`"),
        ("a)", "unexpected ): `a)`"),
        ("a)(b", "unexpected ): `a)(b`"),
        ("[a", "missing closing ]: `[a`"),
        ("[b-a]", "invalid character class range: `b-a`"),
        ("[[:nosuch:]]", "invalid character class range: `[:nosuch:]`"),
        (r"\p{Nosuch}", "invalid character class range: `\\p{Nosuch}`"),
        (r"(a)\1", "invalid escape sequence: `\\1`"),
        (r"\Z", "invalid escape sequence: `\\Z`"),
        (r"a\C", "invalid escape sequence: `\\C`"),
        ("\\", "trailing backslash at end of expression: ``"),
        ("(?=a)", "invalid or unsupported Perl syntax: `(?=`"),
        ("(?<=a)", "invalid or unsupported Perl syntax: `(?<=`"),
        ("(?>a)", "invalid or unsupported Perl syntax: `(?>`"),
        ("(?P=a)", "invalid or unsupported Perl syntax: `(?P`"),
        ("(?x)a", "invalid or unsupported Perl syntax: `(?x`"),
        ("(?P<größe>a)", "invalid named capture: `(?P<größe>`"),
        ("a{1001}", "invalid repeat count: `{1001}`"),
        ("a{2,1}", "invalid repeat count: `{2,1}`"),
        ("(a{100}){100}", "invalid repeat count: `{100}`"),
        (r"\pL{1000}", "expression too large: `\\pL{1000}`"),
        ("a\udcff", "invalid UTF-8: `a\ufffd`"),
    ],
)
def test_a_wrong_pattern_is_refused_in_the_words_of_go(pattern: str, reason: str) -> None:
    with pytest.raises(UserError) as raised:
        compile_regex(pattern)
    assert raised.value.message == f"error parsing regexp: {reason}"


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
    assert not compile_regex(pattern).matches(value)
    assert compile_capturing(pattern).groups(value) is None


def test_groups() -> None:
    assert compile_capturing("(?P<service>.*?)-(\\w+)(x)?").groups("a-b-c") == ("a-b-c", "a-b", "c", "")
    assert compile_capturing("(?P<service>.*?)-(\\w+)(x)?").names == {"service": 1}
    assert compile_capturing("((a*)*)b").groups("aab") == ("aab", "aa", "aa")
    assert compile_capturing("(é)(.*)").groups("éß") == ("éß", "é", "ß")
    assert compile_capturing("(a)|(ab)").groups("ab") == ("ab", "", "ab")


def test_a_byte_that_is_not_utf_8_is_any_character() -> None:
    """As in Go; \\xff in a query's string stands there as a lone surrogate."""
    assert compile_capturing("(.)(.*)").groups("é\udcffz") == ("é\udcffz", "é", "\udcffz")
    assert compile_capturing("(.*)z").groups("\udcffz") == ("\udcffz", "\udcff")
    assert compile_regex(".").matches("\udcff")
    assert not compile_regex("[a-z]").matches("\udcff")


def test_groups_are_found_between_the_parentheses_of_label_replace() -> None:
    assert compile_capturing("a)(b").groups("ab") == ("ab", "b")
    with pytest.raises(UserError, match="invalid escape sequence"):
        compile_capturing("\\C")
    with pytest.raises(UserError, match="invalid named capture"):
        compile_capturing("(?P<n>a)|(?P<n>b)")


def test_groups_that_would_take_seconds_to_find_are_refused() -> None:
    assert compile_capturing("(.*)" * 100).groups("a" * 5000) is not None
    with pytest.raises(TooLarge, match="finding the 100 groups of a regular expression in a value of 65536 bytes"):
        compile_capturing("(.*)" * 100).groups("a" * 65536)


def test_many_alternatives() -> None:
    pattern = "|".join(f"pod-{number}" for number in range(3000))
    assert compile_regex(pattern).matches("pod-2999")
    assert not compile_regex(pattern).matches("pod-3000")


def test_a_search_in_a_column_is_not_anchored() -> None:
    texts = pa.array(["a boom", "BOOM", None, "bo\nom"])
    assert search_column(texts, "b.om").to_pylist() == [True, False, None, False]
    assert search_column(texts, "b.om", ignore_case=True).to_pylist() == [True, True, None, False]
    with pytest.raises(UserError, match="missing \\)"):
        search_column(texts, "(")


@given(text=st.text(), around=st.lists(st.text(), max_size=4), repeat=st.sampled_from([1, 1, 1001]))
def test_a_text_is_found_as_python_finds_it(text: str, around: list[str], repeat: int) -> None:
    wanted = text * repeat
    values = [*around, *(f"{one}{wanted}{one}" for one in around), wanted[:-1], wanted]
    assert find_text(pa.array(values, pa.string()), wanted).to_pylist() == [wanted in value for value in values]
