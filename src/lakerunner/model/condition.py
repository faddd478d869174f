"""Conditions that every wanted row meets, by which segments and row groups are skipped; and the literals of patterns.

A language states conditions for a scan (plan/scan.py); the index skips segments by them (plan/scan.py) and
workers skip row groups (query/segment_cache/prune.py). They are plain values of columns and attributes, because label
views, which are part of the model, state them as well.

A pattern (LIKE, or a regular expression) gives the literals that every matching text contains. A regular expression is
read only as far as it is certain: groups, classes and optional parts give nothing, and a pattern with an alternative
or an unknown escape gives no literal at all.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from lakerunner.model.signal import Attribute


@dataclass(frozen=True)
class Equals:
    """The column, or the text of the attribute, is one of these values; for an id, lower-case hexadecimal text."""

    column: str | Attribute
    values: tuple[str, ...]


@dataclass(frozen=True)
class Contains:
    """The text of the column or attribute contains this literal; `ignore_case` as ILIKE does it, letter by letter."""

    column: str | Attribute
    literal: str
    ignore_case: bool = False


@dataclass(frozen=True)
class Present:
    """At least one of these attributes is not null."""

    attributes: tuple[Attribute, ...]


Condition = Equals | Contains | Present


# ---- literals of patterns

LEAST_BYTES = 3  # the text index has no shorter ones
MOST_LITERALS = 8

# Outside of a class: characters that stand for themselves when escaped, and escapes that match some character or none.
_PUNCTUATION = frozenset("!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~ ")
_SOME_SIGN = frozenset("dDwWsSbBAzntrfva")
_CLASS = re.compile(r"\[\^?\]?(?:\\.|\[:\^?\w+:\]|[^\]\\])*\]", re.DOTALL)
_COUNTED = re.compile(r"\{\d+(?:,\d*)?\}")
_FLAGS = re.compile(r"\(\?([a-zA-Z]*)(?:-[a-zA-Z]+)?[):]")


@dataclass(frozen=True)
class Literals:
    """Texts that every match contains. `ignore_case`: in either case."""

    texts: tuple[str, ...] = ()
    ignore_case: bool = False


def like_literals(pattern: str, escape: str = "") -> tuple[str, ...]:
    """Return the literals of a LIKE pattern. `escape` is the character that makes the next one literal, if there is
    one."""
    return _longest(_like_runs(pattern, escape))


def like_exactly(pattern: str, escape: str = "") -> str | None:
    """Return the only text that matches, or None if the pattern has a wildcard."""
    has_wildcard = any(sign in "%_" or sign == escape for sign in pattern)
    return None if has_wildcard else pattern


def regex_literals(pattern: str, flags: str = "") -> Literals:
    """Return the literals of a pattern as RE2 reads it; `flags` are those of DuckDB's regexp_matches."""
    if not set(flags) <= set("cimnpsg"):
        return Literals()
    scan = _RegexScan(pattern)
    if not scan.understood:
        return Literals()
    return Literals(_longest(scan.runs), scan.ignore_case or "i" in flags)


def _longest(runs: Iterable[str]) -> tuple[str, ...]:
    long = {run: None for run in runs if len(run.encode("utf-8", "surrogatepass")) >= LEAST_BYTES}
    return tuple(sorted(long, key=len, reverse=True)[:MOST_LITERALS])


def _like_runs(pattern: str, escape: str) -> list[str]:
    runs, escaped = [""], False
    for sign in pattern:
        if not escaped and sign == escape:
            escaped = True
            continue
        if sign in "%_" and not escaped:
            runs.append("")
        else:
            runs[-1] += sign
        escaped = False
    return runs


class _RegexScan:
    """One pass over the pattern, one atom or operator at a time."""

    def __init__(self, pattern: str) -> None:
        self.runs = [""]
        self.ignore_case = False
        self._pattern = pattern
        self.understood = self._scan()

    def _scan(self) -> bool:
        at = 0
        while at < len(self._pattern):
            after = self._step(at)
            if after is None:
                return False
            at = after
        return True

    def _step(self, at: int) -> int | None:
        """Return where the next atom or operator begins; None if the pattern is not understood."""
        sign = self._pattern[at]
        match sign:
            case "|":
                return None
            case "\\":
                return self._escape(at)
            case "[" | "(":
                self._break()
                return self._class_end(at) if sign == "[" else self._group_end(at)
            case "*" | "?" | "{":
                counted = _COUNTED.match(self._pattern, at)
                if sign == "{" and not counted:
                    return None
                self.runs[-1] = self.runs[-1][:-1]  # the character before it is optional
                self._break()
                return counted.end() if counted else at + 1
            case "." | "^" | "$" | "+" | "]" | "}" | ")":
                self._break()
                return None if sign == ")" else at + 1
        self.runs[-1] += sign
        return at + 1

    def _break(self) -> None:
        self.runs.append("")

    def _escape(self, at: int) -> int | None:
        sign = self._pattern[at + 1 : at + 2]
        if sign in _PUNCTUATION:
            self.runs[-1] += sign
        elif sign in _SOME_SIGN:
            self._break()
        else:
            return None
        return at + 2

    def _class_end(self, at: int) -> int | None:
        found = _CLASS.match(self._pattern, at)
        return found.end() if found else None

    def _group_end(self, at: int) -> int | None:
        """Return the end of the group. Flags set inside a group are taken to hold everywhere: ignoring case claims
        less, so it is never wrong."""
        depth = 0
        while at < len(self._pattern):
            sign, after = self._pattern[at], at + 1
            if sign == "\\":
                if self._pattern[after : after + 1] == "Q":
                    return None
                after += 1
            elif sign == "[":
                end = self._class_end(at)
                if end is None:
                    return None
                after = end
            elif sign == "(":
                depth += 1
                flags = _FLAGS.match(self._pattern, at)
                self.ignore_case |= bool(flags and "i" in flags[1])
            elif sign == ")":
                depth -= 1
                if depth == 0:
                    return after
            at = after
        return None
