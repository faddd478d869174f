"""Patterns: `<ip> - <_> "<path>"`. The parser `| pattern` and the line filters `|>` and `!>` share them.

Comes in: the text of a pattern. Goes out: its literals and captures. What always holds: a capture takes as little as it
can, up to the first place where the literal behind it stands. A parser fills as many captures as the line has parts
for, the last of them with all that is left; a filter wants all parts, none of them empty, and nothing left.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from lakerunner.logql.stages.line_labels import LineLabels
from lakerunner.logql.stages.parsed import name_to_set
from lakerunner.logql.stages.stage_run import StageContext, StageRun
from lakerunner.logql.text.syntax import Pattern
from lakerunner.model.errors import UserError

_CAPTURE = re.compile("(<[A-Za-z_][A-Za-z0-9_]*>)")
_UNNAMED = "<_>"
_UNREADABLE = re.compile("[\udc80-\udcff]")


@dataclass(frozen=True, slots=True)
class LinePatternParts:
    """Literals and captures in turn, as they are written. `parts` has no empty ones."""

    parts: tuple[str, ...]
    captures: frozenset[int]  # their numbers among the parts

    @property
    def names(self) -> tuple[str, ...]:
        found = (self.parts[number] for number in sorted(self.captures))
        return tuple(part[1:-1] for part in found if part != _UNNAMED)

    def values(self, line: str) -> list[str]:
        """Return the values of the named captures, from the first to the last that the line has a part for."""
        values: list[str] = []
        if not line or not self.parts:
            return values
        at = start = 0
        if 0 not in self.captures:
            if not line.startswith(self.parts[0]):
                return values
            at, start = len(self.parts[0]), 1
        for number in range(start, len(self.parts), 2):
            is_last = number + 1 == len(self.parts)
            end = -1 if is_last else line.find(self.parts[number + 1], at)
            if self.parts[number] != _UNNAMED:
                values.append(line[at:] if end < 0 else line[at:end])
            if end < 0:
                break
            at = end + len(self.parts[number + 1])
        return values

    def fits(self, line: str) -> bool:
        """Return whether all of the line is as the pattern says."""
        if not line or not self.parts:
            return not line and not self.parts
        at = 0
        for number, part in enumerate(self.parts):
            if number in self.captures:
                continue
            place = line.find(part, at)
            if place < 0 or (number and place == at):  # an empty capture
                return False
            at = place + len(part)
        return (len(self.parts) - 1 in self.captures) == (at != len(line))


def read_pattern(text: str) -> LinePatternParts:
    """Split a pattern. A `<` that starts no capture is a literal."""
    split = _CAPTURE.split(text)
    parts = [(part, number % 2 == 1) for number, part in enumerate(split) if part]
    captures = frozenset(number for number, (_, is_capture) in enumerate(parts) if is_capture)
    return LinePatternParts(tuple(_UNREADABLE.sub("\ufffd", part) for part, _ in parts), captures)


def filter_pattern(text: str) -> LinePatternParts:
    """Return the pattern of a line filter, whose captures have no names. Raise UserError if it is wrong."""
    found = read_pattern(text)
    _check_consecutive(found)
    if names := found.names:
        raise UserError(f"named captures are not allowed: found '<{names[0]}>'")
    return found


def parser_pattern(text: str) -> LinePatternParts:
    """Return the pattern of a parser, which has a named capture. Raise UserError if it is wrong."""
    if not text:
        raise UserError("syntax error: unexpected $end, expecting IDENTIFIER or LITERAL")
    found = read_pattern(text)
    names = found.names
    if not names:
        raise UserError("at least one capture is required")
    _check_consecutive(found)
    for place, name in enumerate(names):
        if name in names[:place]:
            raise UserError(f"duplicate capture name ({name}): invalid expression")
    return found


def _check_consecutive(found: LinePatternParts) -> None:
    for number in sorted(found.captures):
        if number + 1 in found.captures:
            both = found.parts[number] + found.parts[number + 1]
            raise UserError(f"found consecutive capture '{both}': invalid expression")


def compile_pattern(stage: Pattern, context: StageContext) -> StageRun:
    pattern = parser_pattern(stage.pattern)
    names, hints = pattern.names, context.hints

    def run(timestamp_ns: int, line: str, labels: LineLabels) -> str:  # noqa: ARG001
        if not hints.skips_parsers(labels):
            for name, value in zip(names, pattern.values(line), strict=False):
                own = name_to_set(labels, hints, name)
                if own:
                    labels.set_parsed(own, value)
        return line

    return run
