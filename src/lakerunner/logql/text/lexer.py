"""Split the text of a LogQL query into lexemes, one at a time and only on demand: which of two mistakes is reported
depends on how far the text has been read.

The `kind` of a lexeme is the name that Loki's messages have for it: a sign or keyword in lower case is its own name,
IDENTIFIER, STRING, NUMBER, DURATION, BYTES, RANGE and FUNCTION_FLAG have values, functions have their names in
capitals, `$end` is the end. What always holds: text is split as Go's text/scanner does it, on which Loki's lexer is
built, so that a sign without meaning is an IDENTIFIER and `//` begins a comment as `#` does.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from lakerunner.logql.text.amounts import parse_bytes, parse_duration, parse_prometheus_duration
from lakerunner.logql.text.number_lexer import number_end
from lakerunner.model.errors import Position, UserError
from lakerunner.model.labels.selector import unquoted

END = "$end"
RANGE_OPERATIONS = frozenset(("rate", "rate_counter", "bytes_rate"))
RANGE_OPERATIONS |= {f"{name}_over_time" for name in ("count", "bytes", "absent", "first", "last", "quantile")}
RANGE_OPERATIONS |= {f"{name}_over_time" for name in ("avg", "sum", "min", "max", "stdvar", "stddev")}
VECTOR_OPERATIONS = frozenset(
    ("sum", "avg", "count", "max", "min", "stddev", "stdvar", "bottomk", "topk", "sort", "sort_desc", "approx_topk")
)
CONVERSIONS = {"BYTES_CONV": "bytes", "DURATION_CONV": "duration", "DURATION_SECONDS_CONV": "duration_seconds"}
_FUNCTIONS = {name: name.upper() for name in (*RANGE_OPERATIONS, *VECTOR_OPERATIONS, "vector")}
_FUNCTIONS |= {name: kind for kind, name in CONVERSIONS.items()} | {"ip": "ip", "label_replace": "label_replace"}
_KEYWORDS = frozenset(("by", "without", "bool", "on", "ignoring", "group_left", "group_right", "or", "and", "unless"))
_KEYWORDS |= {"json", "regexp", "logfmt", "unpack", "pattern", "label_format", "line_format", "decolorize"}
_KEYWORDS |= {"drop", "keep", "unwrap", "offset"}
_FLAGS = ("--strict", "--keep-empty")
_SKIPPED = re.compile(r"(?:[ \t\r\n]+|#[^\n]*|//[^\n]*|/\*.*?\*/)*", re.DOTALL)
_WORD = re.compile(r"[^\W\d]\w*")
_SIGN = re.compile("!=|=~|!~|!>|\\|=|\\|~|\\|>|==|>=|<=|[,.{}=|()+*/%^><\\]-]")
_CALL = re.compile(r"\s*(?:\(|(?:by|without)\s*\()", re.IGNORECASE)
_DURATION_SUFFIX = re.compile("[0-9.nu\u00b5mshdwy]+")
_BYTES_SUFFIX = re.compile("[0-9.BikKMGTP]+")
_FLAG = re.compile(r"-[^\W\d_]*[-\w]*")
_ESCAPES = r"\\(?:[abfnrtv\\%s]|[0-7]{3}|x[0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|U[0-9a-fA-F]{8})"
_BODIES = {quote: re.compile(f"(?:[^{quote}\\\\\n]+|{_ESCAPES % quote})*") for quote in "\"'"}
_CHARACTERS = re.compile(r"\\(?:[0-7]{3}|x..|u....|U.{8}|.)|.", re.DOTALL)
_WIDE = re.compile(r"(\\\\)|\\([0-7]{3})|\\[uU]([0-9a-fA-F]{8}|[0-9a-fA-F]{4})")
_BAD = {"\0": "invalid character NUL"}  # other characters that no text may hold are bytes that are not UTF-8
_UNREADABLE = re.compile("[\0\ud800-\udfff]")


@dataclass(frozen=True, slots=True)
class Lexeme:
    """`value` is the content of a string, the ns of a duration or range, the bytes of a size, the name of a function.
    `composed`: Loki puts it together from several tokens of its scanner, and by then has lost the line number, which
    its messages show as 0."""

    kind: str
    text: str
    start: int
    value: str | int = ""
    composed: bool = False

    @property
    def end(self) -> int:
        return self.start + len(self.text)

    @property
    def name(self) -> str:
        """Return the content of a string, or the name of a function in lower case."""
        return str(self.value)


def position(text: str, at: int) -> Position:
    """Return the place in the text as people count it."""
    before = text[:at]
    return Position(before.count("\n") + 1, at - before.rfind("\n"))


def refusal(text: str, at: int, message: str, *, composed: bool = False) -> UserError:
    """Return the error of a text that cannot be read, in Loki's form with line and column."""
    place = position(text, at)
    if not text:
        return UserError(f"parse error : {message}", place)
    line = 0 if composed else place.line
    return UserError(f"parse error at line {line}, col {place.column}: {message}", place)


class Lexer:
    """`next` returns the next lexeme, `$end` any number of times at the end, or raises UserError."""

    def __init__(self, text: str) -> None:
        self.text = text
        self._at = 1 if text.startswith("\ufeff") else 0
        if found := _UNREADABLE.search(text):
            raise refusal(text, found.start(), _BAD.get(found[0], "invalid UTF-8 encoding"))

    def next(self) -> Lexeme:
        skipped = _SKIPPED.match(self.text, self._at)
        self._at = start = skipped.end() if skipped else self._at
        lexeme = self._lexeme(start, self.text[start : start + 1])
        self._at = lexeme.end
        return lexeme

    def _lexeme(self, start: int, first: str) -> Lexeme:
        if not first:
            return Lexeme(END, "", start)
        if first in "\"`'":
            return self._string(start, first)
        if first == "[":
            return self._range(start)
        if "0" <= first <= "9" or (first == "." and "0" <= self.text[start + 1 : start + 2] <= "9"):
            return self._number(start)
        if word := _WORD.match(self.text, start):
            return self._word(word[0], start)
        if first == "-" and (special := self._behind_minus(start)):
            return special
        if self.text.startswith("/*", start):
            raise refusal(self.text, start, "comment not terminated")
        if sign := _SIGN.match(self.text, start):
            return Lexeme(sign[0], sign[0], start, composed=len(sign[0]) > 1)
        return Lexeme("IDENTIFIER", first, start)

    def _word(self, word: str, start: int) -> Lexeme:
        lowered = word.lower()
        if lowered in _FUNCTIONS and _CALL.match(self.text, start + len(word)):
            return Lexeme(_FUNCTIONS[lowered], word, start, lowered)
        return Lexeme(lowered if lowered in _KEYWORDS else "IDENTIFIER", word, start)

    # ---- amounts

    def _number(self, start: int) -> Lexeme:
        try:
            end = number_end(self.text, start)
        except ValueError as error:
            raise refusal(self.text, start, str(error)) from None
        if amount := self._duration(start, end) or self._bytes(start, end):
            return amount
        return Lexeme("NUMBER", self.text[start:end], start)

    def _duration(self, start: int, end: int) -> Lexeme | None:
        """Return the number or sign that ends at `end` and the units behind it, if they are a duration."""
        suffix = _DURATION_SUFFIX.match(self.text, end)
        if not suffix:
            return None
        text = self.text[start : suffix.end()]
        for parse in (parse_prometheus_duration, parse_duration):
            try:
                return Lexeme("DURATION", text, start, parse(text), composed=True)
            except ValueError:
                continue
        return None

    def _bytes(self, start: int, end: int) -> Lexeme | None:
        suffix = _BYTES_SUFFIX.match(self.text, end)
        if not suffix:
            return None
        text = self.text[start : suffix.end()]
        try:
            return Lexeme("BYTES", text, start, parse_bytes(text), composed=True)
        except ValueError:
            return None

    def _behind_minus(self, start: int) -> Lexeme | None:
        """Return a flag or a negative duration."""
        if (flag := _FLAG.match(self.text, start)) and flag[0] in _FLAGS:
            return Lexeme("FUNCTION_FLAG", flag[0], start, flag[0], composed=True)
        return self._duration(start, start + 1)

    def _range(self, start: int) -> Lexeme:
        end = self.text.find("]", start)
        if end < 0:
            raise refusal(self.text, start, "missing closing ']' in duration", composed=True)
        inner = self.text[start + 1 : end]
        try:
            ns = parse_prometheus_duration(inner)
        except ValueError as error:
            reason = f"{error}: LogQL has no subqueries" if ":" in inner else str(error)
            raise refusal(self.text, start, reason, composed=True) from None
        return Lexeme("RANGE", self.text[start : end + 1], start, ns, composed=True)

    # ---- strings

    def _string(self, start: int, quote: str) -> Lexeme:
        if quote == "`":
            end = self.text.find("`", start + 1)
            if end < 0:
                raise refusal(self.text, start, "literal not terminated")
            return Lexeme("STRING", self.text[start : end + 1], start, self.text[start + 1 : end])
        body = _BODIES[quote].match(self.text, start + 1)
        end = body.end() if body else start + 1
        if self.text[end : end + 1] != quote:
            is_escape = self.text[end : end + 1] == "\\"
            raise refusal(self.text, start, "invalid char escape" if is_escape else "literal not terminated")
        text = self.text[start : end + 1]
        if quote == "'":  # Go's character literal, which means nothing here
            if len(_CHARACTERS.findall(text[1:-1])) != 1:
                raise refusal(self.text, start, "invalid char literal")
            return Lexeme("IDENTIFIER", text, start)
        return Lexeme("STRING", text, start, self._unquoted(text, start))

    def _unquoted(self, text: str, start: int) -> str:
        for escaped, octal, code in _WIDE.findall(text):
            if not escaped and (int(octal, 8) > 0xFF if octal else int(code, 16) > 0x10FFFF):
                raise refusal(self.text, start, "invalid syntax")
        return unquoted(_WIDE.sub(_without_surrogate, text))


def _without_surrogate(found: re.Match[str]) -> str:
    """Replace the escape of half a surrogate pair as Go does when it encodes one."""
    return "\ufffd" if found[3] and 0xD800 <= int(found[3], 16) < 0xE000 else found[0]
