"""Split the text of a PromQL query into tokens, one at a time and only on demand: which of two mistakes is reported
depends on how far the text has been read.

The `kind` of a token is its own text for signs and (in lower case) for keywords; the others are identifier, metric
identifier (it has a colon), string, number, duration and end of input. The meaning of a character depends on the
context: inside braces there are no keywords, inside brackets no names but those of duration expressions.
"""

from __future__ import annotations

from dataclasses import dataclass

from lakerunner.model.display import go_quote, go_quote_character
from lakerunner.model.errors import Position, UserError
from lakerunner.model.labels.selector import PROMQL, Fault, Grammar, string_end, token_in_braces
from lakerunner.series.aggregations import AGGREGATIONS

AGGREGATORS = frozenset(AGGREGATIONS)
DURATION_WORDS = frozenset(("step", "range", "max_of", "min_of"))
WORD_OPERATORS = frozenset(("and", "or", "unless", "atan2"))
SIGN_OPERATORS = frozenset(
    ("+", "-", "*", "/", "%", "^", "==", "!=", "<=", ">=", "<", ">", "</", ">/", "=~", "!~", "@")
)
MODIFIERS = frozenset(("offset", "smoothed", "anchored", "by", "without", "on", "ignoring", "bool"))
MODIFIERS |= {"group_left", "group_right", "fill", "fill_left", "fill_right"}
KEYWORDS = AGGREGATORS | DURATION_WORDS | WORD_OPERATORS | MODIFIERS | {"start", "end"}
END = "end of input"
_NAMED_KINDS = frozenset(("identifier", "metric identifier", "string", "number", "duration"))
_SPACE = frozenset(" \t\n\r")
_DIGITS = frozenset("0123456789")
_HEX_DIGITS = _DIGITS | frozenset("abcdefABCDEF")
_LETTERS = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_")
_WORD = _LETTERS | _DIGITS


@dataclass(frozen=True, slots=True)
class Token:
    kind: str
    text: str
    start: int

    @property
    def end(self) -> int:
        return self.start + len(self.text)

    def description(self) -> str:
        """Return the token as an error message names it."""
        if self.kind == END:
            return END
        shown = go_quote(self.text)
        if self.kind in MODIFIERS:
            return f"<{self.text}>"
        if self.kind in SIGN_OPERATORS or self.kind in WORD_OPERATORS:
            return f"<op:{self.text}>"
        if self.kind in AGGREGATORS:
            return f"<aggr:{self.text}>"
        if "identifier" not in self.kind and len(self.text.encode(errors="surrogatepass")) > 10:
            shown = f"{go_quote(self.text[:10])}..."
        return f"{self.kind} {shown}" if self.kind in _NAMED_KINDS else shown


def refusal(text: str, at: int, message: str) -> UserError:
    """Return the error for a query, with the position in its text."""
    before = text[:at]
    place = Position(before.count("\n") + 1, at - before.rfind("\n"))
    return UserError(f"parse error: {message}", place if text else None)


class Lexer:
    """`next` returns the next token, `end of input` any number of times at the end, or raises UserError."""

    def __init__(self, text: str, grammar: Grammar = PROMQL) -> None:
        self.text = text
        self._grammar = grammar
        self._at = 0
        self._start = 0  # start of the current token
        self._parens = 0
        self._in_braces = False
        self._in_bracket = False
        self._in_duration = False  # inside brackets, before the first number
        self._seen_duration = False  # whether any brackets so far had a number
        self._seen_colon = False

    def next(self) -> Token:
        while True:
            if self._in_braces:
                return self._inside_braces()
            token = self._inside_brackets() if self._in_duration else self._anywhere()
            if token is not None:
                return token

    # Characters. The end of the text is the empty string.

    def _peek(self) -> str:
        return self.text[self._at : self._at + 1]

    def _take(self) -> str:
        character = self.text[self._at : self._at + 1]
        self._at += len(character)
        return character

    def _accept(self, wanted: frozenset[str] | str) -> bool:
        character = self._peek()
        if character and character in wanted:
            self._at += 1
            return True
        return False

    def _token(self, kind: str) -> Token:
        token = Token(kind, self.text[self._start : self._at], self._start)
        self._start = self._at
        return token

    def _fail(self, message: str) -> UserError:
        return refusal(self.text, self._start, message)

    def _skip_space(self) -> None:
        while self._peek() in _SPACE:
            self._at += 1
        self._start = self._at

    def _skip_comment(self) -> None:
        while self._peek() not in ("\r", "\n", ""):
            self._at += 1
        self._start = self._at

    # Contexts.

    def _anywhere(self) -> Token | None:
        character = self._take()
        match character:
            case "":
                if self._parens:
                    raise self._fail("unclosed left parenthesis")
                if self._in_bracket:
                    raise self._fail("unclosed left bracket")
                return self._token(END)
            case "#":
                self._skip_comment()
                return None
            case " " | "\t" | "\n" | "\r":
                self._skip_space()
                return None
            case "," | "*" | "/" | "%" | "+" | "-" | "^" | "@":
                return self._token(character)
            case "=" | "!" | "<" | ">":
                return self._comparison(character)
            case '"' | "'" | "`":
                return self._string()
            case "(" | ")":
                return self._parenthesis(character)
            case "{":
                self._in_braces = True
                return self._token("{")
            case "[" | "]":
                return self._bracket(character)
        if character in _DIGITS or (character == "." and self._peek() in _DIGITS):
            self._at -= 1
            return self._number_or_duration()
        if character in _LETTERS or character == ":":
            return self._in_bracket_word(character) if self._in_bracket else self._word()
        raise self._fail(f"unexpected character: {go_quote_character(character)}")

    def _comparison(self, first: str) -> Token:
        follower = self._peek()
        if first == "=" and follower == "~":
            raise self._fail("unexpected character after '=': '~'")
        if first == "!" and follower != "=":
            raise self._fail(f"unexpected character after '!': {go_quote_character(follower)}")
        self._accept("=/" if first in "<>" else "=")
        return self._token(self.text[self._start : self._at])

    def _parenthesis(self, character: str) -> Token:
        token = self._token(character)
        self._parens += 1 if character == "(" else -1
        if self._parens < 0:
            raise self._fail("unexpected right parenthesis ')'")
        return token

    def _bracket(self, character: str) -> Token:
        if character == "]":
            if not self._in_bracket:
                raise self._fail("unexpected right bracket ']'")
            self._in_bracket = False
            return self._token("]")
        if self._in_bracket:
            raise self._fail("unexpected left bracket '['")
        self._in_bracket = self._in_duration = True
        self._seen_colon = False
        token = self._token("[")
        self._skip_space()
        return token

    def _in_bracket_word(self, character: str) -> Token:
        if character == ":":
            if self._seen_colon:
                raise self._fail("unexpected colon ':'")
            self._seen_colon = True
            return self._token(":")
        word = self._duration_word(character)
        if word is None:
            raise self._fail(f"unexpected character: {go_quote_character(character)}, expected ':'")
        return word

    def _duration_word(self, first: str) -> Token | None:
        if first.lower() not in {word[0] for word in DURATION_WORDS}:
            return None
        while self._accept(_LETTERS):
            pass
        word = self.text[self._start : self._at].lower()
        return self._token(word) if word in DURATION_WORDS else None

    def _inside_brackets(self) -> Token | None:
        character = self._take()
        if not character:
            raise self._fail("unexpected end of input in duration expression")
        if character in _SPACE:
            self._skip_space()
            return None
        if character in "()":
            return self._parenthesis(character)
        if character in "+-*/%^,":
            return self._token(character)
        if character == "]":
            self._in_bracket = self._in_duration = self._seen_colon = False
            return self._token("]")
        if character == ":":
            token = self._token(":")
            if not self._seen_duration:
                raise self._fail("unexpected colon before duration in duration expression")
            if self._seen_colon:
                raise self._fail("unexpected repeated colon in duration expression")
            self._seen_colon = True
            return token
        if character in _DIGITS or (character == "." and self._peek() in _DIGITS):
            self._at -= 1
            self._seen_duration = True
            self._in_duration = False
            return self._number_or_duration()
        if (word := self._duration_word(character)) is not None:
            return word
        raise self._fail(f"unexpected character in duration expression: {go_quote_character(character)}")

    def _inside_braces(self) -> Token:
        try:
            kind, self._start, self._at = token_in_braces(self.text, self._at, self._grammar)
        except Fault as fault:
            raise refusal(self.text, fault.at, fault.message) from None
        self._in_braces = kind != "}"
        return self._token(kind)

    # Words, strings, numbers.

    def _word(self) -> Token:
        if self._grammar.metric and (found := self._grammar.metric.match(self.text, self._start)):
            self._at = found.end()
        word = self.text[self._start : self._at]
        lowered = word.lower()
        if lowered in ("inf", "nan"):
            return self._token("number")
        if lowered.startswith("fill") and not self.text[self._at :].lstrip(" \t\n\r").startswith("("):
            return self._token("metric identifier" if ":" in word else "identifier")
        if lowered in KEYWORDS:
            return self._token(lowered)
        return self._token("metric identifier" if ":" in word else "identifier")

    def _string(self) -> Token:
        try:
            self._at = string_end(self.text, self._start, self._grammar)
        except Fault as fault:
            raise refusal(self.text, fault.at, fault.message) from None
        return self._token("string")

    def _number_or_duration(self) -> Token:
        if self._scan_number():
            return self._token("number")
        if self._scan_units():
            return self._token("duration")
        raise self._fail(f"bad number or duration syntax: {go_quote(self.text[self._start : self._at])}")

    def _scan_units(self) -> bool:
        """Scan what follows the first digits of a duration. Units are checked when the duration is evaluated."""
        if not self._accept("smhdwy"):
            return False
        self._accept("s")  # the s of ms
        while self._accept(_DIGITS):
            while self._accept(_DIGITS):
                pass
            if not self._accept("smhdw"):
                return False
            self._accept("s")
        if self._peek() in _WORD:
            self._at += 1  # the error includes the wrong character
            return False
        return True

    def _scan_number(self) -> bool:
        """Return whether a number is here. What was read of it stays consumed: it may be the beginning of a
        duration."""
        digits = _DIGITS
        if self._accept("0") and self._accept("xX"):
            self._accept("_")
            digits = _HEX_DIGITS
        self._accept(".")
        self._accept(digits)
        dots = exponents = 0
        while (character := self._peek()) and (character in digits or character in "._eE"):
            self._at += 1
            if character == ".":
                dots += 1
                if dots > 1 or self._accept("_.") or digits is _HEX_DIGITS:
                    return False
            elif character in "eE":
                exponents += 1
                if exponents > 1:
                    return False
                self._accept("+-")
                if self._accept("._eE") or not self._peek():
                    return False
            elif character == "_":
                if self._accept("._eE") or not self._peek():
                    return False
            else:
                while self._accept(digits):
                    pass
        return self._peek() not in _WORD
