"""RE2's regular expressions, as PromQL has them, for Python's `re`: the same strings match, the same groups are found,
or the pattern is refused with the reason.

`compiled(pattern).fullmatch(value)` is Prometheus' `^(?s:pattern)$`. Every class is written out as its characters, so
that \\d, \\w, \\s, \\b are ASCII and (?i) folds as RE2 does, whatever Python holds of them. RE2 takes linear time and
Python may take exponential time: where it could, all ways are followed at once instead, and where groups are wanted the
pattern is refused.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import Protocol

from lakerunner.model.errors import UserError
from lakerunner.plan.vectors.regex_classes import (
    ANYTHING,
    NOT_NEWLINE,
    PERL_CLASSES,
    POSIX_CLASSES,
    WORD,
    Ranges,
    class_text,
    complement,
    folded,
)
from lakerunner.plan.vectors.regex_parts import Part, alternatives, one_of, repeated, sequence, standing

MAX_NESTING = 50  # groups inside each other
MAX_REPEAT = 1000  # RE2's own
MAX_BITS = 24  # some 16 million steps for a value of 256 characters
MAX_CAPTURING_BITS = 40
MAX_AT_ONCE = 1024  # characters of a pattern all of whose ways are followed at once
_SHOWN = 100
_WHOLE = re.compile("(?s:.*)")
_COUNTS = re.compile(r"\{(\d+)(,(\d*))?\}", re.ASCII)
_FLAGS = re.compile(r"\(\?([imsU]*)(-[imsU]+)?([:)])")
_NAMED = re.compile(r"\(\?P?<([^>]*)>")
_LETTER_ESCAPES = {"a": 7, "f": 12, "t": 9, "n": 10, "r": 13, "v": 11}
_WORD_CLASS = class_text(WORD)
_BOUNDARY = f"(?:(?<={_WORD_CLASS})(?!{_WORD_CLASS})|(?<!{_WORD_CLASS})(?={_WORD_CLASS}))"
_NO_BOUNDARY = f"(?:(?<={_WORD_CLASS})(?={_WORD_CLASS})|(?<!{_WORD_CLASS})(?!{_WORD_CLASS}))"


class Regex(Protocol):
    def fullmatch(self, string: str, /) -> re.Match[str] | None:
        """Of a whole value. The groups of the match are not to be relied on: `capturing` has them."""


@lru_cache(maxsize=1024)
def compiled(pattern: str) -> Regex:
    """UserError names what is wrong with the pattern, or what of it is not supported."""
    part = _part(pattern)
    if part.bits <= MAX_BITS:
        return re.compile(part.text)
    if len(pattern) > MAX_AT_ONCE:
        reason = (
            f"with so many repetitions and options it may have {MAX_AT_ONCE} characters at most, not {len(pattern)}"
        )
        raise UserError(f"error parsing regexp: {reason}: `{pattern[:_SHOWN]}...`")
    return _AllAtOnce(part)


@lru_cache(maxsize=256)
def capturing(pattern: str) -> re.Pattern[str]:
    """The same with groups, for label_replace; refused where finding them could take too long."""
    part = _part(pattern)
    if part.bits > MAX_CAPTURING_BITS:
        raise UserError(f"error parsing regexp: finding its groups could take exponential time: `{pattern}`")
    return re.compile(part.text)


def _part(pattern: str) -> Part:
    reader = _Reader(pattern)
    part = reader.alternation()
    if reader.at < len(pattern):
        raise reader.fail("unexpected )", pattern)
    return part


@dataclass(frozen=True)
class _AllAtOnce:
    part: Part

    def fullmatch(self, string: str, /) -> re.Match[str] | None:
        found = len(string) in self.part.ends(string, frozenset((0,)))
        return _WHOLE.fullmatch(string) if found else None


class _Reader:
    def __init__(self, pattern: str) -> None:
        self.pattern = pattern
        self.at = 0
        self._flags = frozenset("s")
        self._depth = 0
        self._names: set[str] = set()

    def fail(self, reason: str, about: str) -> UserError:
        return UserError(f"error parsing regexp: {reason}: `{about}`")

    def alternation(self) -> Part:
        """Up to the end or a closing parenthesis. Flags that are set inside last until there."""
        outer = self._flags
        self._depth += 1
        if self._depth > MAX_NESTING:
            raise self.fail(f"more than {MAX_NESTING} groups inside each other", self.pattern)
        found = [self._concatenation()]
        while self._accept("|"):
            found.append(self._concatenation())
        self._depth -= 1
        self._flags = outer
        return alternatives(found)

    def _peek(self) -> str:
        return self.pattern[self.at : self.at + 1]

    def _accept(self, text: str) -> bool:
        if self.pattern.startswith(text, self.at):
            self.at += len(text)
            return True
        return False

    def _concatenation(self) -> Part:
        found: list[Part] = []
        while self._peek() not in ("", "|", ")"):
            start = self.at
            atom = self._atom()
            if atom is None:
                continue
            found.extend(atom[:-1])
            found.append(self._repetition(atom[-1], start))
        return sequence(found)

    def _repetition(self, part: Part, start: int) -> Part:
        counts = self._counts()
        if counts is None:
            return part
        least, most = counts
        text = self.pattern[start : self.at]
        lazy = self._accept("?")
        again = self.at
        if self._counts() is not None:
            raise self.fail("invalid nested repetition operator", self.pattern[again : self.at])
        if max(least, most or 0) * part.repeats > MAX_REPEAT or (most is not None and most < least):
            raise self.fail("invalid repeat count", text)
        return repeated(part, least, most, lazy != ("U" in self._flags))

    def _counts(self) -> tuple[int, int | None] | None:
        """Of the repetition that stands here; most None: unbounded."""
        for sign, counts in (("*", (0, None)), ("+", (1, None)), ("?", (0, 1))):
            if self._accept(sign):
                return counts
        found = _COUNTS.match(self.pattern, self.at)
        if found is None:
            return None
        self.at = found.end()
        least = int(found[1])
        return least, least if found[2] is None else int(found[3]) if found[3] else None

    def _atom(self) -> list[Part] | None:
        """One thing that may be repeated, with what \\Q...\\E put before it; None: flags, or nothing."""
        character = self._peek()
        if character in ("*", "+", "?"):
            raise self.fail("missing argument to repetition operator", character)
        if character == "{" and (found := _COUNTS.match(self.pattern, self.at)):
            raise self.fail("missing argument to repetition operator", found[0])
        if character == "(":
            return self._group()
        if character == "[":
            return [one_of(self._bracketed())]
        if character == "\\":
            return self._escaped()
        self.at += 1
        match character:
            case ".":
                return [one_of(ANYTHING if "s" in self._flags else NOT_NEWLINE)]
            case "^":
                return [standing("(?m:^)" if "m" in self._flags else r"\A")]
            case "$":
                return [standing("(?m:$)" if "m" in self._flags else r"\Z")]
        return [self._literal(ord(character))]

    def _literal(self, code: int) -> Part:
        return one_of(self._fold(((code, code),)))

    def _fold(self, ranges: Ranges) -> Ranges:
        return folded(ranges) if "i" in self._flags else ranges

    def _group(self) -> list[Part] | None:
        opening = "(?:"
        if flags := _FLAGS.match(self.pattern, self.at):
            self.at = flags.end()
            changed = (self._flags | set(flags[1])) - set(flags[2] or "")
            if flags[3] == ")":
                self._flags = changed
                return None
            outer, self._flags = self._flags, changed
            inner = self.alternation()
            self._flags = outer
        else:
            opening = self._opening()
            inner = self.alternation()
        if not self._accept(")"):
            raise self.fail("missing closing )", self.pattern)
        return [inner.inside(opening)]

    def _opening(self) -> str:
        """Of a group that captures."""
        if named := _NAMED.match(self.pattern, self.at):
            name = named[1]
            if re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name) is None or name in self._names:
                raise self.fail("invalid named capture", named[0])
            self._names.add(name)
            self.at = named.end()
            return f"(?P<{name}>"
        if self.pattern.startswith("(?", self.at):
            raise self.fail("invalid or unsupported Perl syntax", self.pattern[self.at : self.at + 3])
        self.at += 1
        return "("

    def _escaped(self) -> list[Part] | None:
        letter = self.pattern[self.at + 1 : self.at + 2]
        if letter == "Q":
            end = self.pattern.find("\\E", self.at + 2)
            inside = self.pattern[self.at + 2 :] if end < 0 else self.pattern[self.at + 2 : end]
            self.at = len(self.pattern) if end < 0 else end + 2
            return [self._literal(ord(character)) for character in inside] or None
        anchors = {"A": r"\A", "z": r"\Z", "b": _BOUNDARY, "B": _NO_BOUNDARY}
        if letter in anchors:
            self.at += 2
            return [standing(anchors[letter])]
        if (ranges := self._perl_class()) is not None:
            return [one_of(ranges)]
        return [self._literal(self._escape())]

    def _perl_class(self) -> Ranges | None:
        letter = self.pattern[self.at + 1 : self.at + 2]
        if letter in ("p", "P"):
            raise self.fail("classes by Unicode property are not supported", "\\" + letter)
        if letter and letter in PERL_CLASSES:
            self.at += 2
            return self._fold(PERL_CLASSES[letter])
        if letter and letter.lower() in PERL_CLASSES:
            self.at += 2
            return complement(self._fold(PERL_CLASSES[letter.lower()]))
        return None

    def _escape(self) -> int:
        """The character of an escape that stands for one."""
        start = self.at
        self.at += 2
        letter = self.pattern[start + 1 : self.at]
        if not letter:
            raise self.fail("trailing backslash at end of expression", "")
        if letter in _LETTER_ESCAPES:
            return _LETTER_ESCAPES[letter]
        if octal := re.compile("0[0-7]{0,2}|[1-7][0-7]{1,2}").match(self.pattern, start + 1):
            self.at = octal.end()
            return int(octal[0], 8)
        if hexadecimal := re.compile(r"x(?:([0-9a-fA-F]{2})|\{([0-9a-fA-F]+)\})").match(self.pattern, start + 1):
            self.at = hexadecimal.end()
            code = int(hexadecimal[1] or hexadecimal[2], 16)
            if code <= 0x10FFFF:
                return code
        elif letter.isascii() and not letter.isalnum():
            return ord(letter)
        raise self.fail("invalid escape sequence", self.pattern[start : self.at])

    def _bracketed(self) -> Ranges:
        start = self.at
        self.at += 1
        negated = self._accept("^")
        found: list[tuple[int, int]] = []
        first = True
        while first or self._peek() != "]":
            if not self._peek():
                raise self.fail("missing closing ]", self.pattern[start:])
            found += self._class_member()
            first = False
        self.at += 1
        ranges = self._fold(tuple(found))
        return complement(ranges) if negated else ranges

    def _class_member(self) -> Ranges:
        if self._peek() == "[" and (named := re.compile(r"\[:(\^?)([a-z]*):\]").match(self.pattern, self.at)):
            if named[2] not in POSIX_CLASSES:
                raise self.fail("invalid character class range", named[0])
            self.at = named.end()
            ranges = self._fold(POSIX_CLASSES[named[2]])
            return complement(ranges) if named[1] else ranges
        start = self.at
        if self._peek() == "\\" and (perl := self._perl_class()) is not None:
            return perl
        low = high = self._class_character()
        if self._peek() == "-" and self.pattern[self.at + 1 : self.at + 2] not in ("]", ""):
            self.at += 1
            high = self._class_character()
        if high < low:
            raise self.fail("invalid character class range", self.pattern[start : self.at])
        return ((low, high),)

    def _class_character(self) -> int:
        if self._peek() == "\\":
            return self._escape()
        self.at += 1
        return ord(self.pattern[self.at - 1])
