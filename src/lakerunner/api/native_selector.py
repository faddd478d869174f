"""What a request for tags may say in `q`: one selector of rows, as the Grafana plugin writes it around its filters.

Comes in: `http_requests{code=~"5..", "k8s.pod.name"!=""}`, perhaps inside calls such as `sum by (x) (rate(...[5m]))`,
which choose no other rows. Goes out: its matchers, all of which a row must meet; a metric's name is the matcher of
`__name__`. All else of PromQL, LogQL and TraceQL is refused by name and with its place: rows that a part would leave
out must not be told of as if they had been asked for.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from lakerunner.model.errors import Position, UserError

MAX_DEPTH = 20  # calls inside each other
MAX_MATCHERS = 50
NAME = "__name__"
_TOKEN = re.compile(
    r"""\s*(?:
      (?P<text>"(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*'|`[^`]*`)
    | (?P<window>\[\s*[0-9]+(?:ms|[smhdwy])(?:[0-9]+(?:ms|[smhdwy]))*\s*\])
    | (?P<number>[0-9]+(?:\.[0-9]+)?)
    | (?P<name>[a-zA-Z_:][a-zA-Z0-9_:.]*)
    | (?P<sign>=~|!~|!=|=|[{}(),])
    | (?P<end>\Z)
    | (?P<other>.)
    )""",
    re.VERBOSE | re.DOTALL,
)
_ESCAPE = re.compile(r"\\(?:u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8})|x([0-9a-fA-F]{2})|(.))", re.DOTALL)
_ESCAPED = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v", "\\": "\\", '"': '"', "'": "'"}
_OPERATORS = ("=", "!=", "=~", "!~")
_GROUPINGS = ("by", "without")


@dataclass(frozen=True)
class Matcher:
    """`operator` is =, !=, =~ or !~; what stands behind =~ and !~ matches whole values. Where a row lacks the label,
    its value is ''."""

    label: str
    operator: str
    value: str


@dataclass(frozen=True)
class _Token:
    kind: str
    text: str
    at: int


def read_selector(text: str, language: str) -> tuple[Matcher, ...]:
    """`language` is what a refusal calls the language of `text`."""
    reader = _Reader(text, language)
    matchers = tuple(reader.expression(MAX_DEPTH))
    reader.take("end")
    return matchers


class _Reader:
    def __init__(self, text: str, language: str) -> None:
        self._text = text
        self._language = language
        self._tokens = [
            _Token(str(found.lastgroup), found[str(found.lastgroup)], found.start(str(found.lastgroup)))
            for found in _TOKEN.finditer(text)
        ]
        self._next = 0

    def expression(self, depth: int) -> list[Matcher]:
        """A selector, or a call of which one argument is an expression and the others before it are numbers."""
        if not depth:
            raise self._refusal(f"calls are nested more than {MAX_DEPTH} deep")
        name = self._skip("name")
        if name and (self._is("(") or self._is(*_GROUPINGS)):
            self._grouping()
            self.take("(")
            while self._skip("number"):
                self.take(",")
            inner = self.expression(depth - 1)
            self.take(")")
            self._grouping()
            return inner
        found = [Matcher(NAME, "=", name.text)] if name else []
        if not name or self._is("{"):
            found += self._matchers()
        self._skip("window")
        return found

    def take(self, wanted: str) -> _Token:
        """The next token, which must be of this kind, or be this sign."""
        token = self._tokens[self._next]
        if wanted not in (token.kind, token.text) or (wanted == token.text and token.kind == "text"):
            raise self._refusal(f"expected {wanted}, found {token.text or 'the end'}")
        self._next += 1
        return token

    def _matchers(self) -> list[Matcher]:
        found: list[Matcher] = []
        self.take("{")
        while not self._is("}"):
            found.append(self._matcher())
            if len(found) > MAX_MATCHERS:
                raise self._refusal(f"more than {MAX_MATCHERS} matchers")
            if not self._is("}"):
                self.take(",")
        self.take("}")
        return found

    def _matcher(self) -> Matcher:
        quoted = self._skip("text")
        label = self._string(quoted) if quoted else self.take("name").text
        if quoted and self._is(",", "}"):  # a metric's name in quotes
            return Matcher(NAME, "=", label)
        operator = self.take("sign")
        if operator.text not in _OPERATORS:
            raise self._refusal(f"expected one of {' '.join(_OPERATORS)}, found {operator.text}", operator)
        return Matcher(label, operator.text, self._string(self.take("text")))

    def _grouping(self) -> None:
        """`by (a, b)`, which chooses no rows."""
        if not self._is(*_GROUPINGS):
            return
        self.take("name")
        self.take("(")
        while not self._is(")"):
            if not self._skip("text"):
                self.take("name")
            if not self._is(")"):
                self.take(",")
        self.take(")")

    def _is(self, *texts: str) -> bool:
        token = self._tokens[self._next]
        return token.kind != "text" and token.text in texts

    def _skip(self, kind: str) -> _Token | None:
        return self.take(kind) if self._tokens[self._next].kind == kind else None

    def _string(self, token: _Token) -> str:
        inner = token.text[1:-1]
        return inner if token.text[0] == "`" else _ESCAPE.sub(lambda found: self._unescaped(found, token), inner)

    def _unescaped(self, found: re.Match[str], token: _Token) -> str:
        code = found[1] or found[2] or found[3]
        if code:
            number = int(code, 16)
            if number > 0x10FFFF or 0xD800 <= number <= 0xDFFF:
                raise self._refusal(f"{found[0]} is not a character", token)
            return chr(number)
        if found[4] not in _ESCAPED:
            raise self._refusal(f"{found[0]} is not an escape sequence", token)
        return _ESCAPED[found[4]]

    def _refusal(self, why: str, token: _Token | None = None) -> UserError:
        before = self._text[: (token or self._tokens[self._next]).at]
        position = Position(before.count("\n") + 1, len(before) - (before.rfind("\n") + 1) + 1)
        return UserError(
            f'{self._language} is not available yet: q may be one selector as `{{service_name="cart"}}`, and {why}',
            position,
        )
