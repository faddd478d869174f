"""The paths of json and logfmt extractions, as a user writes them: `a.b[0]["c d"]`, and the key of a logfmt pair.

Comes in: the text of a path. Goes out: its parts. What always holds: a wrong path raises UserError in Loki's words,
which are those of its parser generator.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from lakerunner.model.errors import UserError

_FIELD = re.compile("[A-Za-z_][A-Za-z0-9_]*")
_TEXT = re.compile('"([^"\\]\0]*)["\\]\0]?')  # Loki ends it at a bracket too
_DIGITS = re.compile("[0-9]+")
_SIGNS = {".": "DOT", "[": "LSB", "]": "RSB"}
_END = "$end"


@dataclass(frozen=True, slots=True)
class _Token:
    kind: str
    text: str = ""


class _Wrong(ValueError):
    """The path is wrong; the message says how."""


class _Tokens:
    """The tokens of a path. `fault` is that of a character that cannot stand in it, which ends the path."""

    def __init__(self, text: str, signs: str) -> None:
        self._text = text
        self._signs = signs
        self._at = 0
        self.fault = ""
        self.current = self._read()

    def take(self, *kinds: str) -> _Token:
        token = self.current
        if token.kind not in kinds:
            expected = f", expecting {' or '.join(kinds)}" if kinds else ""
            raise _Wrong(f"syntax error: unexpected {token.kind}{expected}")
        self.current = self._read()
        return token

    def _read(self) -> _Token:
        text = self._text
        while self._at < len(text) and text[self._at] in " \t\n":
            self._at += 1
        sign = text[self._at : self._at + 1]
        if not sign or sign == "\0":
            return _Token(_END)
        if "." in self._signs and sign in "0123456789":
            return self._index()
        if sign in self._signs:
            self._at += 1
            return _Token(_SIGNS[sign])
        found = _FIELD.match(text, self._at) or _TEXT.match(text, self._at)
        if not found:
            return self._stop(f"unexpected char {sign}")
        self._at = found.end()
        return _Token("STRING", found[1]) if sign == '"' else _Token("FIELD", found[0])

    def _index(self) -> _Token:
        found = _DIGITS.match(self._text, self._at)
        end = found.end() if found else self._at
        after = self._text[end : end + 1]
        if after == ".":
            return self._stop("cannot use float as array index")
        if not after or after not in " \t\n]":
            return self._stop(f"non-integer value: {after or chr(0)}")
        index = int(self._text[self._at : end])
        self._at = end
        return _Token("INDEX", f"[{index}]")

    def _stop(self, fault: str) -> _Token:
        self.fault, self._at = fault, len(self._text)
        return _Token(_END)


def parse_json_path(text: str) -> tuple[str, ...]:
    """Return keys, and indexes as `[0]`."""
    try:
        tokens = _Tokens(text, ".[]")
        parts = [_bracketed(tokens) if tokens.current.kind == "LSB" else tokens.take("LSB", "FIELD").text]
        while tokens.current.kind in ("DOT", "LSB"):
            if tokens.current.kind == "LSB":
                parts.append(_bracketed(tokens))
            else:
                tokens.take("DOT")
                parts.append(tokens.take("FIELD").text)
        _finish(tokens)
    except _Wrong as wrong:
        raise UserError(f"cannot parse expression [{text}]: {wrong}") from None
    return tuple(parts)


def _bracketed(tokens: _Tokens) -> str:
    tokens.take("LSB")
    part = tokens.take("STRING", "INDEX").text
    tokens.take("RSB")
    return part


def parse_logfmt_key(text: str) -> str:
    """Return the key of a pair: a name, or texts in double quotes."""
    try:
        tokens = _Tokens(text, "")
        parts = [tokens.take("STRING", "FIELD").text]
        while tokens.current.kind == "STRING":
            parts.append(tokens.take("STRING").text)
        _finish(tokens)
    except _Wrong as wrong:
        raise UserError(f"cannot parse expression [{text}]: {wrong}") from None
    # Go's Sprintf writes what has no verb of its own so.
    extra = ", ".join(f"string={part}" for part in parts[1:])
    return f"{parts[0]}%!(EXTRA {extra})" if extra else parts[0]


def _finish(tokens: _Tokens) -> None:
    if tokens.fault:
        raise _Wrong(tokens.fault)
    if tokens.current.kind != _END:
        tokens.take()
