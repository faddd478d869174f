"""The literal texts that whatever matches a pattern must hold: of LIKE, and of regular expressions.

Comes in: a pattern of a query, or of a matcher. Goes out: the longest runs of plain signs in it. What always holds: a
text that matches holds each of them. A regular expression is read only as far as one can be sure of it: what stands in
groups, classes and optional parts says nothing, and one that has an alternative, or an escape not known here, says
nothing at all.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

LEAST_BYTES = 3  # shorter ones are in no index
MOST_LITERALS = 8

# Outside of a class: signs that stand for themselves when escaped, and escapes that stand for some sign or none.
_PUNCTUATION = frozenset("!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~ ")
_SOME_SIGN = frozenset("dDwWsSbBAzntrfva")
_CLASS = re.compile(r"\[\^?\]?(?:\\.|\[:\^?\w+:\]|[^\]\\])*\]", re.DOTALL)
_COUNTED = re.compile(r"\{\d+(?:,\d*)?\}")
_FLAGS = re.compile(r"\(\?([a-zA-Z]*)(?:-[a-zA-Z]+)?[):]")


@dataclass(frozen=True)
class Literals:
    texts: tuple[str, ...] = ()
    ignore_case: bool = False


def like_literals(pattern: str, escape: str = "") -> tuple[str, ...]:
    """`escape`: what takes the meaning from the sign behind it, if anything does."""
    return _longest(_like_runs(pattern, escape))


def like_exactly(pattern: str, escape: str = "") -> str | None:
    """The one text that matches, where there is no wildcard."""
    has_wildcard = any(sign in "%_" or sign == escape for sign in pattern)
    return None if has_wildcard else pattern


def regex_literals(pattern: str, flags: str = "") -> Literals:
    """As RE2 reads the pattern; `flags` are those of DuckDB's regexp_matches."""
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
        """Where the next atom or operator begins; None: not understood."""
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
                self.runs[-1] = self.runs[-1][:-1]  # the sign before it need not be there
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
        """Flags set inside a group count for everything: to ignore case says less, so it is never wrong."""
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
