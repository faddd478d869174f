"""Read tokens: the parser's position in them and the constructs it is inside, since an unexpected token is reported
with the innermost one that states what it expects; and the values of numbers, durations and strings.

Numbers and durations that mean time are seconds, as a query writes them; ms are integers, truncated from rounded ns.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from contextlib import contextmanager

from lakerunner.model.display import go_quote
from lakerunner.model.errors import UserError
from lakerunner.model.labels import selector
from lakerunner.model.labels.selector import PROMQL, Grammar, unquoted
from lakerunner.promql.lexer import Lexer, Token, refusal

MAX_NESTING = 100
_UNITS = {"y": 31_536_000_000, "w": 604_800_000, "d": 86_400_000, "h": 3_600_000, "m": 60_000, "s": 1000, "ms": 1}
_LARGEST_NS = 1 << 63
LARGEST_SECONDS = _LARGEST_NS / 1e9
_INTEGER = re.compile(r"0[xX](?:_?[0-9a-fA-F])+|0(?:_?[0-7])*|[1-9](?:_?[0-9])*")


class Cursor:
    """Reads tokens with one token of lookahead, which is lexed only when it is needed."""

    def __init__(self, text: str, grammar: Grammar = PROMQL) -> None:
        self.text = text
        self.last_end = 0  # end of the last token taken
        self._depth = 0
        self._lexer = Lexer(text, grammar)
        self._next: Token | None = None
        self._inside: list[tuple[str, str]] = [("", "")]

    @property
    def kind(self) -> str:
        """Return the kind of the next token."""
        return self.peek().kind

    def peek(self) -> Token:
        if self._next is None:
            self._next = self._lexer.next()
        return self._next

    def take(self) -> Token:
        token = self.peek()
        self._next = None
        self.last_end = token.end
        return token

    def accept(self, kind: str) -> Token | None:
        return self.take() if self.kind == kind else None

    def expect(self, kind: str) -> Token:
        if self.kind != kind:
            raise self.unexpected()
        return self.take()

    def value(self, token: selector.Token) -> str:
        """Return the content of a string, which must be UTF-8."""
        return utf8_string(self.text, token)

    def fail(self, at: int, message: str) -> UserError:
        return refusal(self.text, at, message)

    def unexpected(self, context: str | None = None, expected: str = "") -> UserError:
        """Return the error for the next token. Without a context that of the innermost construct applies."""
        if context is None:
            context, expected = self._inside[-1]
        message = f"unexpected {self.peek().description()}"
        message += f" in {context}" if context else ""
        message += f", expected {expected}" if expected else ""
        return self.fail(self.peek().start, message)

    @contextmanager
    def inside(self, context: str, expected: str = "") -> Iterator[None]:
        self._inside.append((context, expected))
        yield
        self._inside.pop()

    def enter(self) -> None:
        """Go one level deeper. The parser recurses for each, so that depth is refused before the stack runs out."""
        self._depth += 1
        if self._depth > MAX_NESTING:
            raise self.fail(self.peek().start, f"more than {MAX_NESTING} expressions inside each other")

    def leave(self) -> None:
        self._depth -= 1


# ---- values of tokens


def number(text: str, token: Token) -> float:
    """Evaluate a number. An integer with a leading 0 is octal, with 0x hexadecimal."""
    word = token.text
    if _INTEGER.fullmatch(word):
        digits = word.replace("_", "").lower()
        octal = len(digits) > 1 and digits[0] == "0" and digits[1] != "x"
        value = int(digits, 8 if octal else 0)
        if value < 1 << 63:
            return float(value)
    try:
        found = float(word)
    except ValueError:
        raise _number_error(text, token, "invalid syntax") from None
    if math.isinf(found) and word.lower() != "inf":
        raise _number_error(text, token, "value out of range")
    return found


def _number_error(text: str, token: Token, reason: str) -> Exception:
    token_text = go_quote(token.text)
    return refusal(text, token.start, f"error parsing number: strconv.ParseFloat: parsing {token_text}: {reason}")


def duration_seconds(text: str, token: Token) -> float:
    """Evaluate 1h30m and the like: units from the largest to the smallest, each once."""
    total = 0  # ms
    last = -1
    order = list(_UNITS)
    invalid = f"not a valid duration string: {go_quote(token.text)}"
    parts = re.findall(r"([0-9]*)([^0-9]+)", token.text)
    for digits, unit in parts:
        if not digits or int(digits) >= 1 << 64:
            raise refusal(text, token.start, invalid)
        if unit not in _UNITS:
            message = f"unknown unit {go_quote(unit)} in duration {go_quote(token.text)}"
            raise refusal(text, token.start, message)
        if order.index(unit) <= last:
            raise refusal(text, token.start, invalid)
        last = order.index(unit)
        total += int(digits) * _UNITS[unit]
        if total * 1_000_000 >= _LARGEST_NS:
            raise refusal(text, token.start, "duration out of range")
    return total // 1000 + total % 1000 * 1_000_000 / 1e9


def milliseconds(seconds: float) -> int:
    """Convert seconds, at most LARGEST_SECONDS, to ms: rounded to ns, then truncated, as Go's time.Duration does."""
    ns = round_half_away(seconds * 1e9)
    return ns // 1_000_000 if ns >= 0 else -(-ns // 1_000_000)


def round_half_away(value: float) -> int:
    """Round to the nearest integer, halves away from zero."""
    whole = math.trunc(value)
    return whole + (int(math.copysign(1, value)) if abs(value - whole) >= 0.5 else 0)


def is_utf8(value: str) -> bool:
    """Return whether the text is valid UTF-8. Escapes may leave bytes that are not; they appear as lone surrogates."""
    return replace_invalid(value) == value


def replace_invalid(value: str) -> str:
    """Replace bytes that are not UTF-8 by the replacement character."""
    return re.sub("[\ud800-\udfff]", "\ufffd", value)


def utf8_string(text: str, token: selector.Token) -> str:
    """Return the content of a string token; raise UserError if its escapes do not give UTF-8."""
    value = unquoted(token.text)
    if not is_utf8(value):
        raise refusal(text, token.start, f"string {token.text} is not UTF-8 once its escapes are read")
    return value
