"""Conditions that every wanted row meets, by which segments and row groups are skipped; and the literals of patterns.

A language states conditions for a scan (plan/scan.py); the index skips segments by them (plan/scan.py) and
workers skip row groups (query/segment_cache/prune.py). They are plain values of columns and attributes, because label
views, which are part of the model, state them as well.

A pattern (LIKE, or a regular expression) gives the literals that every matching text contains. A regular expression is
read only as far as it is certain: classes and optional parts give nothing, and a pattern with an unknown escape gives
no literal at all. Alternatives (`a|b`, also in one group) give a choice of literals.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from lakerunner.model.signal import Attribute


@dataclass(frozen=True)
class Equals:
    """The column, or the text of the attribute, is one of these values; for an id, lower-case hexadecimal text."""

    column: str | Attribute
    values: tuple[str, ...]


@dataclass(frozen=True)
class Contains:
    """The text of the column or attribute contains this literal; `ignore_case` as ILIKE does it, letter by letter.
    `is_word`: with no character of a word (`word_pattern`) before or behind it."""

    column: str | Attribute
    literal: str
    ignore_case: bool = False
    is_word: bool = False


@dataclass(frozen=True)
class Present:
    """At least one of these attributes is not null."""

    attributes: tuple[Attribute, ...]


@dataclass(frozen=True)
class Labelled:
    """An attribute of the scope, or a member of one that is a map, has this name as a label of LogQL; with `values`,
    and one of these texts there."""

    scope: str
    name: str
    values: tuple[str, ...] | None = None


@dataclass(frozen=True)
class NotNull:
    """The stored column is not null."""

    column: str


@dataclass(frozen=True)
class Stored:
    """The column is one of these texts, in segments that have it; no language knows its name."""

    column: str
    values: tuple[str, ...]


@dataclass(frozen=True)
class AnyOf:
    """At least one of these holds."""

    conditions: tuple[Condition, ...]


@dataclass(frozen=True)
class AllOf:
    """All of these hold; for the branches of AnyOf."""

    conditions: tuple[Condition, ...]


Leaf = Equals | Contains | Present | Labelled | NotNull | Stored
Condition = Leaf | AnyOf | AllOf
MOST_ALTERNATIVES = 64  # of one AnyOf that a pattern gives; each costs a lookup in every text index


def any_of(branches: Iterable[Iterable[Condition]]) -> tuple[Condition, ...]:
    """Return what holds if all conditions of some branch hold: those that all branches share, and a choice of the
    others unless there are too many."""
    distinct = list(dict.fromkeys(tuple(dict.fromkeys(branch)) for branch in branches))
    shared = tuple(one for one in (distinct[0] if distinct else ()) if all(one in branch for branch in distinct))
    rest = [tuple(one for one in branch if one not in shared) for branch in distinct]
    if not all(rest) or not 1 < len(rest) <= MOST_ALTERNATIVES:
        return shared
    return (*shared, AnyOf(tuple(branch[0] if len(branch) == 1 else AllOf(branch) for branch in rest)))


def leaves(conditions: Iterable[Condition]) -> Iterator[Leaf]:
    """Yield the conditions that are not made of others."""
    for condition in conditions:
        if isinstance(condition, AnyOf | AllOf):
            yield from leaves(condition.conditions)
        else:
            yield condition


# ---- literals of patterns

LEAST_BYTES = 3  # the text index has no shorter ones
MOST_LITERALS = 8

# Outside of a class: characters that stand for themselves when escaped, and escapes that match some character or none.
_PUNCTUATION = frozenset("!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~ ")
_SOME_SIGN = frozenset("dDwWsSbBAzntrfva")
_CLASS = re.compile(r"\[\^?\]?(?:\\.|\[:\^?\w+:\]|[^\]\\])*\]", re.DOTALL)
_COUNTED = re.compile(r"\{\d+(?:,\d*)?\}")
_GROUP = re.compile(r"\((?:\?P?<\w+>|\?(?P<flags>[a-zA-Z]*(?:-[a-zA-Z]+)?)[):]|(?!\?))")


@dataclass(frozen=True)
class Literals:
    """Texts that every match contains: all those of one of the `choices`. `ignore_case`: in either case."""

    choices: tuple[tuple[str, ...], ...] = ((),)
    ignore_case: bool = False

    def within(self, column: str | Attribute) -> tuple[Condition, ...]:
        """Return what holds of a column or attribute whose text matches."""
        return any_of([Contains(column, text, self.ignore_case) for text in texts] for texts in self.choices)


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
    choices = tuple(dict.fromkeys(_longest(_runs(alternative)) for alternative in scan.alternatives))
    if () in choices:
        return Literals()
    return Literals(choices, scan.ignore_case or "i" in flags)


def regex_values(pattern: str) -> tuple[str, ...]:
    """Return the only texts that a whole match can be, if the pattern is alternatives of plain texts; else nothing."""
    scan = _RegexScan(pattern)
    if not scan.understood or scan.ignore_case or any(None in one for one in scan.alternatives):
        return ()
    return tuple(dict.fromkeys("".join(filter(None, one)) for one in scan.alternatives))


# A word is what the text index calls a token (model/text_index.py), whatever its length: beyond ASCII all characters
# belong to it.
_WORD_SIGNS = r"0-9A-Za-z_\x{80}-\x{10FFFF}"
_WORD = re.compile("[0-9A-Za-z_\x80-\U0010ffff]+")
_BEFORE_WORD, _BEHIND_WORD = f"(?:^|[^{_WORD_SIGNS}])", f"(?:$|[^{_WORD_SIGNS}])"


def word_pattern(word: str) -> str | None:
    """Return the regular expression of texts with this whole word; None if it is not one word."""
    return f"{_BEFORE_WORD}{word}{_BEHIND_WORD}" if _WORD.fullmatch(word) else None


def word_of(pattern: str) -> str | None:
    """Return the word that `word_pattern` made this pattern of, None if it did not."""
    word = pattern.removeprefix(_BEFORE_WORD).removesuffix(_BEHIND_WORD)
    return word if pattern == word_pattern(word) else None


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


# A sequence of characters that stand for themselves; None: something else, or nothing, may be there.
_Sequence = list[str | None]


def _runs(sequence: _Sequence) -> list[str]:
    runs = [""]
    for sign in sequence:
        if sign is None:
            runs.append("")
        else:
            runs[-1] += sign
    return runs


class _RegexScan:
    """One pass over the pattern, one atom or operator at a time. `alternatives` are those of the whole pattern: a group
    multiplies those before it, as long as they are few."""

    def __init__(self, pattern: str) -> None:
        self.ignore_case = False
        self._pattern = pattern
        self._at = 0
        self.alternatives: list[_Sequence] = [[]]
        try:
            self.alternatives = self._choice()
            self.understood = self._at == len(pattern)
        except (_UnknownSyntax, RecursionError):
            self.understood = False

    def _choice(self) -> list[_Sequence]:
        """Read alternatives up to the end of the pattern or of the group."""
        found = self._sequence()
        while self._pattern.startswith("|", self._at):
            self._at += 1
            found.extend(self._sequence())
        return found if len(found) <= MOST_ALTERNATIVES else [[None]]

    def _sequence(self) -> list[_Sequence]:
        found: list[_Sequence] = [[]]
        while self._at < len(self._pattern) and self._pattern[self._at] not in "|)":
            atom = self._repeated(self._atom())
            if len(found) * len(atom) > MOST_ALTERNATIVES:
                atom = [[None]]
            if len(atom) == 1:
                for before in found:
                    before.extend(atom[0])
            else:
                found = [[*before, *one] for before in found for one in atom]
        return found

    def _atom(self) -> list[_Sequence]:
        sign = self._pattern[self._at]
        match sign:
            case "\\":
                return self._escape()
            case "[":
                ends = _CLASS.match(self._pattern, self._at)
                if not ends:
                    raise _UnknownSyntax
                self._at = ends.end()
                return [[None]]
            case "(":
                return self._group()
            case "*" | "?" | "{" | "+":
                raise _UnknownSyntax
        self._at += 1
        # Anchors stand for nothing, but what is beside them may not be adjacent: `^` behind a newline.
        return [[None]] if sign in ".^$]}" else [[sign]]

    def _repeated(self, atom: list[_Sequence]) -> list[_Sequence]:
        """Return the atom with the operators behind it."""
        while self._at < len(self._pattern) and self._pattern[self._at] in "*?{+":
            counted = _COUNTED.match(self._pattern, self._at)
            if self._pattern[self._at] == "{" and not counted:
                raise _UnknownSyntax
            once = self._pattern[self._at] == "+"
            self._at = counted.end() if counted else self._at + 1
            atom = [[*one, None] for one in atom] if once else [[None]]  # of several only the first is looked at
        return atom

    def _escape(self) -> list[_Sequence]:
        sign = self._pattern[self._at + 1 : self._at + 2]
        self._at += 2
        if sign and sign in _PUNCTUATION:
            return [[sign]]
        if sign and sign in _SOME_SIGN:
            return [[None]]
        raise _UnknownSyntax

    def _group(self) -> list[_Sequence]:
        """Read a group. Flags set inside a group are taken to hold everywhere: ignoring case claims less, so it is
        never wrong."""
        opening = _GROUP.match(self._pattern, self._at)
        if not opening:
            raise _UnknownSyntax
        self._at = opening.end()
        self.ignore_case |= "i" in (opening["flags"] or "").partition("-")[0]
        if opening["flags"] is not None and opening[0].endswith(")"):
            return [[]]
        found = self._choice()
        if not self._pattern.startswith(")", self._at):
            raise _UnknownSyntax
        self._at += 1
        return found


class _UnknownSyntax(Exception):
    """The pattern has something whose literals are not certain."""
