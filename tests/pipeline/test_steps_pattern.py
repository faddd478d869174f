"""The pattern fingerprint: alike for messages of one pattern, stable for ever."""

from __future__ import annotations

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.lakeql_oracle import fingerprint_of

ALIKE = [
    ("took 15ms", "took 1500ms"),
    ("user 7f3a9c21 logged in", "user 00 logged in"),
    ("from 10.0.0.1:8080 to 10.0.0.2:9090", "from 192.168.1.77:1 to 8.8.8.8:53"),
    ("at 2026-01-01T00:00:00.123Z done", "at 2025-12-31T23:59:59Z done"),
    ("id 123e4567-e89b-12d3-a456-426614174000", "id deadbeef-cafe-fade-babe-abcdefabcdef"),
    ("hash deadbeefdead", "hash cafebabecafe"),
    ('open "a.txt" failed', 'open "/var/log/b c.log" failed'),
    ("open 'a.txt' failed", "open 'other thing' failed"),
    ("a  b\tc\n", "a b c"),
    ('{"user":"u1","took":15}', '{"user":"u2222","took":7}'),
    ("reached 100%", "reached 7%"),
]
DIFFERENT = [
    ("connection opened", "connection closed"),
    ("a b", "ab"),
    ("a-b", "a b"),
    ("user=alice", "user=bob"),
    ("Failed", "failed"),
    ('{"level":"info"}', '{"level":"warn"}'),
    ("don't panic", "do not panic"),
    ("x 1", "1 x"),
    ("", "a"),
    ("[1]", "(1)"),
    ('open "a', 'open "b'),
]

PINNED = {
    "": -5435081209227447693,
    "hello": 8905365619180502369,
    "took 15ms": -6623365573384227467,
    "a much longer-word here": 7594914143091610791,
    'open "x": naïve': -1261116512025077734,
    '{"a":1}': -2436804392894545416,
}


@pytest.mark.parametrize(("one", "other"), ALIKE)
def test_messages_of_one_pattern_are_alike(one: str, other: str) -> None:
    assert fingerprint_of(one) == fingerprint_of(other)


@pytest.mark.parametrize(("one", "other"), DIFFERENT)
def test_messages_of_two_patterns_differ(one: str, other: str) -> None:
    assert fingerprint_of(one) != fingerprint_of(other)


def test_fingerprints_never_change() -> None:
    """They are stored in segments: another value here breaks every lake that exists."""
    assert {message: fingerprint_of(message) for message in PINNED} == PINNED


WORD = r"[A-Za-z0-9_\x80-\xff]"
TOKEN = re.compile(rf"{WORD}(?:[-.:@](?={WORD})|{WORD})*|[ \t\n\v\f\r]+|.", re.S)


def masked(message: str) -> list[str]:
    """The same rules once more, with regular expressions."""
    text = message.encode().decode("latin-1").strip(" \t\n\v\f\r")
    quoting = not text.startswith(("{", "["))
    tokens: list[str] = []
    at, after_word = 0, False
    while at < len(text):
        sign = text[at]
        close = text.find(sign, at + 1) if quoting and (sign == '"' or (sign == "'" and not after_word)) else -1
        if close > 0:
            tokens.append("<variable>")
            at, after_word = close + 1, False
            continue
        found = TOKEN.match(text, at)
        assert found
        token, at = found.group(), found.end()
        after_word = bool(re.match(WORD, token))
        if after_word and (re.search("[0-9]", token) or re.fullmatch("[0-9a-fA-F-]{8,}", token)):
            token = "<variable>"
        tokens.append(" " if token.isspace() and token.strip(" \t\n\v\f\r") == "" else token)
    return tokens


pieces = st.sampled_from(
    [
        "word",
        "a1",
        "1",
        "dead",
        "deadbeef",
        " ",
        "  ",
        "\n",
        '"',
        "'",
        "-",
        ".",
        ":",
        "@",
        "/",
        "{",
        "[",
        "=",
        "é",
        "%",
        "x-",
    ]
)


@settings(max_examples=500, deadline=None)
@given(st.lists(pieces, max_size=8).map("".join), st.lists(pieces, max_size=8).map("".join))
def test_messages_are_alike_exactly_if_the_rules_say_so(one: str, other: str) -> None:
    for another in (other, one.replace("a1", "22"), one.replace("word", "words"), one.replace(" ", "  ")):
        assert (fingerprint_of(one) == fingerprint_of(another)) == (masked(one) == masked(another))
