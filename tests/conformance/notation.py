"""Parse series as scripts write them: `name{label="value"} 1 2+3x4 _ stale {{schema:1 count:3 sum:2 buckets:[1 2]}}`.

Comes in: a line. Goes out: labels and the points, one for each step. What always holds: what the grammar does not know
is refused, never skipped.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass

from conformance.histogram_notation import parse_histogram, sequence
from lakerunner.model.labels import NAME, Labels, labels_of
from lakerunner.promql.selection.staleness import STALE
from lakerunner.series.histograms.histogram import Histogram


class ScriptError(Exception):
    """The script itself is invalid; the message names the line."""


@dataclass(frozen=True)
class Point:
    """A point; None for no point. `hint_given`: a histogram that was written with its reset hint, which is then
    compared."""

    value: float | Histogram | None
    hint_given: bool = False


NO_POINT = Point(None)

_UNITS = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 604_800_000, "y": 31_536_000_000}
_DURATION = re.compile(r"(?:(\d+)y)?(?:(\d+)w)?(?:(\d+)d)?(?:(\d+)h)?(?:(\d+)m(?!s))?(?:(\d+)s)?(?:(\d+)ms)?")
_NAME = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]*")
_LABEL = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]*")
_QUOTED = re.compile(r'"(?:[^"\\\n]|\\.)*"|\'(?:[^\'\\\n]|\\.)*\'|`[^`]*`')
_SPACE = re.compile(r"[ \t]+")
_UNSIGNED = (
    r"(?:inf|nan|(?:\d+y)?(?:\d+w)?(?:\d+d)?(?:\d+h)?(?:\d+m(?!s))?(?:\d+s)?(?:\d+ms)?(?<=[smhdwy])|"
    r"(?:\d[\d_]*(?:\.\d*)?|\.\d+)(?:e[+-]?\d+)?)"
)
_ITEM = re.compile(rf"(?P<base>[+-]?{_UNSIGNED})(?P<step>[+-]{_UNSIGNED})?(?:x(?P<times>\d+))?", re.IGNORECASE)
_HISTOGRAMS = re.compile(r"\{\{(?P<base>[^}]*)\}\}(?:(?P<sign>[+-])\{\{(?P<step>[^}]*)\}\})?(?:x(?P<times>\d+))?")
_STARTS = re.compile(r"(?P<base>[+-]?\d+[a-z]*?)(?P<step>[+-]\d+[a-z]*?)?(?:x(?P<times>\d+))?")
_ESCAPES = {"a": 7, "b": 8, "f": 12, "n": 10, "r": 13, "t": 9, "v": 11, "\\": 92, '"': 34, "'": 39}
_ESCAPE = re.compile(r"\\(?:([abfnrtv\\\"'])|([0-7]{3})|x([0-9a-fA-F]{2})|u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8}))")


def parse_series(line: str) -> tuple[Labels, list[Point]]:
    labels, rest = parse_labels(line)
    return labels, list(parse_points(rest))


def parse_starts(line: str) -> tuple[Labels, list[int | None]] | None:
    """Parse `name{..}@st -1m -1m+0sx3 _`: start times in ms relative to those of the points; None if it is not such a
    line."""
    if not line.split(maxsplit=1)[0].endswith("@st"):
        return None
    labels, rest = parse_labels(line)
    starts: list[int | None] = []
    for item in rest.removeprefix("@st").split():
        if blanks := re.fullmatch(r"_(?:x(\d+))?", item):
            starts += [None] * int(blanks[1] or 1)
        elif found := _STARTS.fullmatch(item):
            base, step = _signed_ms(found["base"]), _signed_ms(found["step"] or "0")
            starts += [base + step * n for n in range(int(found["times"] or 0) + 1)]
        else:
            raise ScriptError(f"{item} is no start time")
    return labels, starts


def parse_labels(line: str) -> tuple[Labels, str]:
    """Parse labels; also return the rest of the line."""
    pairs, rest = parse_pairs(line)
    return labels_of(pairs), rest


def parse_pairs(line: str) -> tuple[list[tuple[str, str]], str]:
    """Parse labels, those with empty values too; also return the rest of the line."""
    place = 0
    labels: list[tuple[str, str]] = []
    if found := _NAME.match(line):
        labels.append((NAME, found[0]))
        place = found.end()
    elif not line.startswith("{"):
        raise ScriptError(f"no series in: {line}")
    if line[place : place + 1] == "{" and line[place : place + 2] != "{{":
        inside, place = _inside_braces(line, place + 1)
        labels += inside
    return labels, line[place:]


def _inside_braces(line: str, place: int) -> tuple[list[tuple[str, str]], int]:
    labels: list[tuple[str, str]] = []
    while True:
        place = _after_space(line, place)
        if line.startswith("}", place):
            return labels, place + 1
        quoted = _QUOTED.match(line, place)
        found = quoted or _LABEL.match(line, place)
        if found is None:
            raise ScriptError(f"no label at: {line[place:]}")
        name, place = unquoted(found[0]) if quoted else found[0], _after_space(line, found.end())
        if line.startswith("=", place):
            value = _QUOTED.match(line, _after_space(line, place + 1))
            if value is None:
                raise ScriptError(f"no label value at: {line[place:]}")
            labels.append((name, unquoted(value[0])))
            place = _after_space(line, value.end())
        elif quoted:
            labels.append((NAME, name))
        else:
            raise ScriptError(f"no value of {name} in: {line}")
        if line.startswith(",", place):
            place += 1
        elif not line.startswith("}", place):
            raise ScriptError(f"neither , nor }} at: {line[place:]}")


def _after_space(line: str, place: int) -> int:
    found = _SPACE.match(line, place)
    return found.end() if found else place


def parse_points(text: str) -> Iterator[Point]:
    place = 0
    while (after := _after_space(text, place)) < len(text):
        if after == place:
            raise ScriptError(f"no space before: {text[place:]}")
        end = _HISTOGRAMS.match(text, after)
        stop = end.end() if end else _next_space(text, after)
        yield from _item(text[after:stop])
        place = stop


def _next_space(text: str, place: int) -> int:
    found = _SPACE.search(text, place)
    return found.start() if found else len(text)


def _item(item: str) -> Iterator[Point]:
    if item.startswith("_"):
        blanks = re.fullmatch(r"_(?:x(\d+))?", item)
        if blanks is None:
            raise ScriptError(f"{item} is no point")
        yield from [NO_POINT] * int(blanks[1] or 1)
    elif item == "stale":
        yield Point(float(STALE))
    elif found := _HISTOGRAMS.fullmatch(item):
        base, given = parse_histogram(found["base"])
        step = None
        if found["step"] is not None:
            step, given = parse_histogram(found["step"])
            if found["times"] is None:
                raise ScriptError(f"{item}: how many times?")
        for histogram in sequence(base, step, found["sign"] or "+", int(found["times"] or 0)):
            yield Point(histogram, given)
    elif (found := _ITEM.fullmatch(item)) and not (found["step"] and found["times"] is None):
        value, step_ = parse_number(found["base"]), parse_number(found["step"] or "0")
        for _ in range(int(found["times"] or 0) + 1):
            yield Point(value)
            value += step_
    else:
        raise ScriptError(f"{item} is no point")


def parse_number(text: str) -> float:
    """Parse a number, or a duration in seconds. Raise ValueError otherwise."""
    sign = -1.0 if text.startswith("-") else 1.0
    bare = text[1:] if text[:1] in ("+", "-") else text
    if bare.lower() in ("inf", "infinity", "nan"):
        return sign * (math.nan if bare.lower() == "nan" else math.inf)
    if re.fullmatch(r"0[xX][0-9a-fA-F]+|0[bB][01]+|0[oO][0-7]+", bare):
        return sign * int(bare, 0)
    if bare[-1:].isalpha():
        return sign * (duration_ms(bare) / 1000)
    if not re.fullmatch(r"(\d[\d_]*(\.\d*)?|\.\d+)([eE][+-]?\d+)?", bare):
        raise ValueError(f"{text} is no number")
    if re.fullmatch(r"0[0-7]+", bare):
        return sign * int(bare, 8)
    return sign * float(bare)


def duration_ms(text: str) -> int:
    """Parse `1h30m`, or a bare 0. Raise ValueError otherwise."""
    if text == "0":
        return 0
    found = _DURATION.fullmatch(text)
    if found is None or not text:
        raise ValueError(f"{text!r} is no duration")
    units = ("y", "w", "d", "h", "m", "s", "ms")
    return sum(int(number) * _UNITS[unit] for number, unit in zip(found.groups(), units, strict=True) if number)


def _signed_ms(text: str) -> int:
    return -duration_ms(text[1:]) if text.startswith("-") else duration_ms(text.removeprefix("+"))


def unquoted(text: str) -> str:
    """Unquote a PromQL string. Between backticks nothing is escaped."""
    inside = text[1:-1]
    if text[0] == "`":
        return inside

    def meant(found: re.Match[str]) -> bytes:
        short, octal, two, four, eight = found.groups()
        if short:
            return bytes([_ESCAPES[short]])
        if octal or two:
            return bytes([int(octal, 8) if octal else int(two, 16)])
        return chr(int(four or eight, 16)).encode()

    place, pieces = 0, []
    for found in _ESCAPE.finditer(inside):
        pieces += [inside[place : found.start()].encode(), meant(found)]
        place = found.end()
    pieces.append(inside[place:].encode())
    return b"".join(pieces).decode("utf-8", "replace")
