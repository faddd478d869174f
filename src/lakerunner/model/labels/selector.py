"""The grammar of a selector's braces: `{name="value", "other name"=~"pattern"}`.

Comes in: tokens, or a text and where the next token stands. Goes out: the items between the braces, and the values of
their strings. What always holds: PromQL's selectors, those of the native API and the labels of Loki's streams are read
here, and `Grammar` has all that they differ in. Strings are Go's; a byte that is not UTF-8 stands in them as a lone
surrogate (Python's surrogateescape).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, NamedTuple, Protocol

from lakerunner.model.display import go_quote_character
from lakerunner.model.labels import NAME
from lakerunner.model.labels.matcher import OPERATORS, Matcher, Operator


@dataclass(frozen=True)
class Grammar:
    """`name` is what may stand without quotes inside the braces, `metric` before them; None: a metric cannot be named.
    `strings`: "go" as Prometheus' lexer reads them; "checked" also takes either quote after a backslash, and U+FFFD;
    "lenient" keeps an unknown escape as it is."""

    name: re.Pattern[str]
    metric: re.Pattern[str] | None
    operators: tuple[Operator, ...] = OPERATORS
    quotes: str = "\"'`"
    strings: Literal["go", "checked", "lenient"] = "go"


_DOTTED = re.compile("[a-zA-Z_:][a-zA-Z0-9_:.]*")
PROMQL = Grammar(re.compile("[a-zA-Z_][a-zA-Z0-9_]*"), re.compile("[a-zA-Z_:][a-zA-Z0-9_:]*"))
TAGS = Grammar(_DOTTED, _DOTTED, strings="checked")
STREAM = Grammar(re.compile("[a-zA-Z_][a-zA-Z0-9_:.]*"), None, ("=",), '"`', "lenient")


class Fault(Exception):
    """A token that cannot be read, and where it begins."""

    def __init__(self, at: int, message: str) -> None:
        super().__init__(message)
        self.at = at
        self.message = message


class Item(NamedTuple):
    """A matcher, and where it begins in the text."""

    matcher: Matcher
    start: int


class Token(Protocol):
    @property
    def kind(self) -> str:
        """identifier, string, or the sign itself."""

    @property
    def text(self) -> str: ...

    @property
    def start(self) -> int: ...


class Tokens(Protocol):
    """A stream of tokens with one token of lookahead."""

    @property
    def kind(self) -> str:
        """The kind of the next token."""

    def take(self) -> Token: ...

    def value(self, token: Token) -> str:
        """Return what a string holds."""

    def unexpected(self, context: str, expected: str) -> Exception:
        """Return the refusal of the next token."""


def read_items(tokens: Tokens, grammar: Grammar) -> Iterator[Item]:
    """Read from the opening brace to the closing one. Yield an item before looking at what follows it, so that the
    first fault of a text is the one that is reported."""
    tokens.take()
    while tokens.kind != "}":
        yield _item(tokens, grammar)
        if tokens.kind not in (",", "}"):
            raise tokens.unexpected("label matching", '"," or "}"')
        if tokens.kind == ",":
            tokens.take()
    tokens.take()


def _item(tokens: Tokens, grammar: Grammar) -> Item:
    if tokens.kind not in ("identifier", "string"):
        raise tokens.unexpected("label matching", 'identifier or "}"')
    label = tokens.take()
    name = tokens.value(label) if label.kind == "string" else label.text
    op = next((operator for operator in grammar.operators if tokens.kind == operator), None)
    if op is None:
        if label.kind == "string" and grammar.metric:
            return Item(Matcher(NAME, "=", name), label.start)  # a metric's name in quotes
        raise tokens.unexpected("label matching", "label matching operator")
    tokens.take()
    if tokens.kind != "string":
        raise tokens.unexpected("label matching", "string")
    return Item(Matcher(name, op, tokens.value(tokens.take())), label.start)


# ---- tokens inside the braces

_SPACE = re.compile(r"(?:[ \t\n\r]+|#[^\r\n]*)*")
_SIGN = re.compile("=~|!~|!=|[=,}]")
_PLAIN = {
    '"': re.compile(r'"[^"\\\n\ufffd]*"'),
    "'": re.compile(r"'[^'\\\n\ufffd]*'"),
    "`": re.compile("`[^`\ufffd]*`"),
}
_RUN = re.compile("[^\"'`\\\\\n\ufffd]*")
_HEX_DIGITS = frozenset("0123456789abcdefABCDEF")
_CODE_ESCAPES = {"x": (2, 16, 255), "u": (4, 16, 0x10FFFF), "U": (8, 16, 0x10FFFF)}  # digits, base, largest
_SHORT_ESCAPES = dict(zip("abfnrtv\\'\"", "\a\b\f\n\r\t\v\\'\"", strict=True))
_ESCAPE = re.compile(
    r"""(?P<bytes>(?:\\x[0-9a-fA-F]{2}|\\[0-7]{3})+)|\\(?:(?P<short>[abfnrtv\\'"])"""
    r"""|u(?P<four>[0-9a-fA-F]{4})|U(?P<eight>[0-9a-fA-F]{8}))"""
)
_BYTE = re.compile(r"\\x(..)|\\(...)")


def token_in_braces(text: str, at: int, grammar: Grammar) -> tuple[str, int, int]:
    """Return kind, start and end of the next token. Raise Fault."""
    space = _SPACE.match(text, at)
    start = space.end() if space else at
    character = text[start : start + 1]
    if character and character in grammar.quotes:
        return "string", start, string_end(text, start, grammar)
    if name := grammar.name.match(text, start):
        return "identifier", start, name.end()
    if sign := _SIGN.match(text, start):
        return sign[0], start, sign.end()
    match character:
        case "":
            raise Fault(start, "unexpected end of input inside braces")
        case "{":
            raise Fault(start, "unexpected left brace '{'")
        case "!":
            shown = go_quote_character(text[start + 1 : start + 2])
            raise Fault(start, f"unexpected character after '!' inside braces: {shown}")
    raise Fault(start, f"unexpected character inside braces: {go_quote_character(character)}")


def string_end(text: str, start: int, grammar: Grammar) -> int:
    """Return where the string that begins at `start` ends. Raise Fault for an unterminated string or a wrong escape."""
    quote = text[start]
    if plain := _PLAIN[quote].match(text, start):
        return plain.end()
    is_raw = quote == "`"
    at = start + 1
    while (character := text[at : at + 1]) != quote:
        if character == "\ufffd" and grammar.strings == "go":  # Go has it for bytes that are not UTF-8
            raise Fault(start, "invalid UTF-8 rune")
        if not character or (character == "\n" and not is_raw and grammar.strings != "lenient"):
            raise Fault(start, "unterminated raw string" if is_raw else "unterminated quoted string")
        at += 1
        if character == "\\" and not is_raw:
            at = at + 1 if grammar.strings == "lenient" else _escape_end(text, start, at, grammar)
        if run := _RUN.match(text, at):
            at = run.end()
    return at + 1


def _escape_end(text: str, start: int, at: int, grammar: Grammar) -> int:
    """Check the escape whose backslash is before `at`, in the string that begins at `start`; return its end."""
    character = text[at : at + 1]
    quotes = text[start] if grammar.strings == "go" else "\"'"
    if not character:
        raise Fault(start, "escape sequence not terminated")
    if character in "abfnrtv\\" or character in quotes:
        return at + 1
    if character in "01234567":
        digits, base, largest = 3, 8, 255
    elif character in _CODE_ESCAPES:
        digits, base, largest = _CODE_ESCAPES[character]
        at += 1
    else:
        raise Fault(start, f"unknown escape sequence {_code_point(character)}")
    code = 0
    for place in range(at, at + digits):
        character = text[place : place + 1]
        if not character:
            raise Fault(start, "escape sequence not terminated")
        if character not in _HEX_DIGITS or int(character, 16) >= base:
            raise Fault(start, f"illegal character {_code_point(character)} in escape sequence")
        code = code * base + int(character, 16)
    if code > largest or 0xD800 <= code < 0xE000:
        raise Fault(start, "escape sequence is an invalid Unicode code point")
    return at + digits


def _code_point(character: str) -> str:
    return f"U+{ord(character):04X} '{character}'" if character.isprintable() else f"U+{ord(character):04X}"


def unquoted(string: str) -> str:
    """Return what a string holds, without its quotes; unknown escapes stay as they are."""
    inner = string[1:-1]
    return inner if string[0] == "`" or "\\" not in inner else _ESCAPE.sub(_unescaped, inner)


def _unescaped(found: re.Match[str]) -> str:
    if found["short"]:
        return _SHORT_ESCAPES[found["short"]]
    if run := found["bytes"]:  # together, as several of them may be one character
        codes = (
            int(hexadecimal, 16) if hexadecimal else int(octal, 8) & 0xFF for hexadecimal, octal in _BYTE.findall(run)
        )
        return bytes(codes).decode(errors="surrogateescape")
    code = int(found["four"] or found["eight"], 16)
    return found[0] if code > 0x10FFFF or 0xD800 <= code < 0xE000 else chr(code)
