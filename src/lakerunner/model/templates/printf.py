"""Go's Sprintf: a format with verbs such as `%-10s` and its arguments.

Comes in: the format and values. Goes out: text; what does not fit is shown inside it as Go does, `%!d(string=x)`. What
always holds: a format is parsed once, and the text is refused once it is longer than a template may make.
go_verbs.py writes one value by one verb.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any

from lakerunner.model.templates.go_values import INTEGERS, NIL, TYPE_NAMES, value_text
from lakerunner.model.templates.go_verbs import Flags, format_value
from lakerunner.model.templates.limits import check_length

_MAX_NUMBER = 1_000_000  # a greater width or precision is an error in Go
_FLAGS = re.compile("[#0+ -]*")
_NUMBER = re.compile("[0-9]*")
_INDEX = re.compile(r"\[([^\]]*)\]")
_BAD_INDEX = -1
_STAR = -1


@dataclass(frozen=True, slots=True)
class _Directive:
    """`%[1]*.[2]*[3]d`: up to three arguments by number. `_STAR` is a width or precision that is an argument. A plain
    directive has neither stars nor numbers, so that its flags are all known."""

    flags: Flags
    is_plain: bool
    first: int | None = None
    width: int | None = None
    has_point: bool = False
    second: int | None = None
    precision: int | None = None
    third: int | None = None
    verb: str = ""  # "" at the end of the format


@lru_cache(maxsize=256)
def _parse(text: str) -> tuple[str | _Directive, ...]:
    pieces: list[str | _Directive] = []
    at = 0
    while (percent := text.find("%", at)) >= 0:
        if percent > at:
            pieces.append(text[at:percent])
        directive, at = _directive(text, percent + 1)
        pieces.append(directive)
    if at < len(text):
        pieces.append(text[at:])
    return tuple(pieces)


def _directive(text: str, at: int) -> tuple[_Directive, int]:
    found = _FLAGS.match(text, at)
    flags, at = (found[0], found.end()) if found else ("", at)
    first, at = _index(text, at)
    width, at = _number(text, at)
    has_point = at + 1 < len(text) and text[at] == "."
    second = precision = None
    if has_point:
        second, at = _index(text, at + 1)
        precision, at = _number(text, at)
    third = None
    if (second if has_point else first) is None or width == _STAR or precision == _STAR:
        third, at = _index(text, at)
    known = Flags.from_text(flags)
    known.width = None if width == _STAR else width
    known.precision = (precision or 0) if has_point and precision != _STAR else None
    is_plain = (first, second, third) == (None, None, None) and _STAR not in (width, precision)
    return _Directive(known, is_plain, first, width, has_point, second, precision, third, text[at : at + 1]), at + 1


def _index(text: str, at: int) -> tuple[int | None, int]:
    if text[at : at + 1] != "[":
        return None, at
    found = _INDEX.match(text, at)
    if not found:
        return _BAD_INDEX, at + 1
    number = found[1]
    if not number.isascii() or not number.isdecimal() or int(number) > _MAX_NUMBER:
        return _BAD_INDEX, found.end()
    return int(number) - 1, found.end()


def _number(text: str, at: int) -> tuple[int | None, int]:
    if text[at : at + 1] == "*":
        return _STAR, at + 1
    found = _NUMBER.match(text, at)
    if not found or not found[0]:
        return None, at
    if len(found[0].lstrip("0")) > 7 or int(found[0]) > _MAX_NUMBER:
        return None, len(text)  # Go reads no verb behind such a number
    return int(found[0]), found.end()


@dataclass(slots=True)
class _Printer:
    """The state of one call: which argument is next, and whether the format named any by number."""

    values: tuple[Any, ...]
    parts: list[str] = field(default_factory=list)
    length: int = 0
    next: int = 0
    is_reordered: bool = False
    is_good: bool = True

    def write(self, text: str) -> None:
        self.length += len(text)
        check_length(self.length)
        self.parts.append(text)

    def seek(self, index: int | None) -> None:
        if index is None:
            return
        self.is_reordered = True
        if 0 <= index < len(self.values):
            self.next = index
        else:
            self.is_good = False

    def number(self, fault: str) -> int | None:
        """Take a width or a precision from the arguments."""
        value: Any = self.values[self.next] if self.next < len(self.values) else None
        self.next = min(self.next + 1, max(len(self.values), self.next))
        if value is not None and type(value) in INTEGERS and -_MAX_NUMBER <= value <= _MAX_NUMBER:
            return int(value)
        self.write(f"%!({fault})")
        return None

    def print(self, directive: _Directive) -> None:
        self.is_good = True
        if directive.is_plain:
            self._print_verb(directive.verb, directive.flags)
            return
        flags = replace(directive.flags)
        self.seek(directive.first)
        width = directive.width
        if width == _STAR:
            flags.width = self.number("BADWIDTH")
            if flags.width is not None and flags.width < 0:
                flags.width, flags.minus, flags.zero = -flags.width, True, False
        elif directive.first is not None and width is not None:
            self.is_good = False
        if directive.has_point:
            self._take_precision(directive, flags)
        self.seek(directive.third)
        self._print_verb(directive.verb, flags)

    def _take_precision(self, directive: _Directive, flags: Flags) -> None:
        if directive.first is not None and directive.width != _STAR:
            self.is_good = False
        self.seek(directive.second)
        if directive.precision != _STAR:
            return
        precision = self.number("BADPREC")
        if precision is not None and precision < 0:
            self.write("%!(BADPREC)")
        else:
            flags.precision = precision

    def _print_verb(self, verb: str, flags: Flags) -> None:
        if not verb:
            self.write("%!(NOVERB)")
        elif verb == "%":
            self.write("%")
        elif not self.is_good:
            self.write(f"%!{verb}(BADINDEX)")
        elif self.next >= len(self.values):
            self.write(f"%!{verb}(MISSING)")
        else:
            self.write(format_value(self.values[self.next], verb, flags))
            self.next += 1

    def finish(self) -> str:
        rest = self.values[self.next :]
        if rest and not self.is_reordered:
            shown = (NIL if value is None else f"{TYPE_NAMES[type(value)]}={value_text(value)}" for value in rest)
            self.write("%!(EXTRA " + ", ".join(shown) + ")")
        return "".join(self.parts)


def sprintf(text: str, *values: Any) -> str:
    """Fill the values into the format."""
    printer = _Printer(values)
    for piece in _parse(text):
        if type(piece) is str:
            printer.write(piece)
        elif isinstance(piece, _Directive):
            printer.print(piece)
    return printer.finish()
