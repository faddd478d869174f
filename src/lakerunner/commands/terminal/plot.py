"""Plot series on a terminal: lines of braille dots, axes with round numbers, a legend.

Missing steps, NaN, infinities and values near them are gaps. Where lines meet, the later series has the colour.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from rich.text import Text

COLOURS = ("green", "yellow", "cyan", "magenta", "blue", "red", "bright_green", "bright_yellow", "bright_cyan", "white")
MOST_SERIES = 40
_DOTS = ((0x01, 0x08), (0x02, 0x10), (0x04, 0x20), (0x40, 0x80))  # bits of a braille character, by row and column
_BRAILLE = 0x2800
_UNITS = ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"), (1.0, ""), (1e-3, "m"), (1e-6, "µ"), (1e-9, "n"))
_DAY_MS = 86_400_000


@dataclass(frozen=True)
class Line:
    """A series. `points` are (ms, value) in order of time; points further apart than `gap_ms` are not joined."""

    name: str
    points: Sequence[tuple[int, float]]
    gap_ms: int

    def finite(self) -> Iterator[tuple[int, float]]:
        return ((time, value) for time, value in self.points if _drawable(value))


@dataclass(frozen=True)
class Frame:
    """The area of the plot: times in ms, values, and its size in characters without the axes."""

    start_ms: int
    end_ms: int
    low: float
    high: float
    width: int
    height: int

    def x(self, time_ms: int) -> int:
        """Return the column of dots of a time."""
        share = (time_ms - self.start_ms) / max(1, self.end_ms - self.start_ms)
        return min(2 * self.width - 1, max(0, round(share * (2 * self.width - 1))))

    def y(self, value: float) -> int:
        """Return the row of dots of a value, from the top."""
        share = (value - self.low) / (self.high - self.low)
        return min(4 * self.height - 1, max(0, round((1 - share) * (4 * self.height - 1))))


class Canvas:
    """Braille characters of two columns and four rows of dots each."""

    def __init__(self, width: int, height: int) -> None:
        self._dots = [[0] * width for _ in range(height)]
        self._colours = [[""] * width for _ in range(height)]

    def dot(self, x: int, y: int, colour: str) -> None:
        self._dots[y // 4][x // 2] |= _DOTS[y % 4][x % 2]
        self._colours[y // 4][x // 2] = colour

    def line(self, x: int, y: int, to_x: int, to_y: int, colour: str) -> None:
        steps = max(abs(to_x - x), abs(to_y - y), 1)
        for n in range(steps + 1):
            self.dot(x + round((to_x - x) * n / steps), y + round((to_y - y) * n / steps), colour)

    def rows(self) -> Iterator[Text]:
        for dots, colours in zip(self._dots, self._colours, strict=True):
            text = Text()
            for sign, colour in zip(dots, colours, strict=True):
                text.append(chr(_BRAILLE + sign) if sign else " ", style=colour)
            yield text


def plot(lines: Sequence[Line], start_ms: int, end_ms: int, width: int, height: int) -> Iterator[Text]:
    """Yield the lines of text, including axes and legend."""
    drawn = lines[:MOST_SERIES]
    values = [value for line in drawn for _, value in line.finite()]
    if not values:
        yield Text("no values to plot")
        return
    ticks = _ticks(min(values), max(values), max(2, height // 4))
    names = dict(zip(ticks, _tick_texts(ticks), strict=True))
    margin = max(map(len, names.values()))
    frame = Frame(start_ms, end_ms, ticks[0], ticks[-1], max(10, width - margin - 2), height)
    canvas = Canvas(frame.width, height)
    for number, line in enumerate(drawn):
        _draw(canvas, frame, line, COLOURS[number % len(COLOURS)])
    at = {frame.y(tick) // 4: name for tick, name in names.items()}
    for number, row in enumerate(canvas.rows()):
        yield Text(f"{at.get(number, ''):>{margin}} {'┤' if number in at else '│'}", style="dim") + row
    yield Text(" " * (margin + 1) + "└" + "─" * frame.width, style="dim")
    yield Text(" " * (margin + 2) + _times(frame), style="dim")
    yield from _legend(drawn, len(lines))


def short(value: float) -> str:
    """Write a number with about four digits and the letter of a unit."""
    if not math.isfinite(value) or not 1e-9 <= abs(value) < 1e15:
        return f"{value:.4g}"
    unit, letter = _unit(abs(value))
    text = f"{value / unit:.3f}"
    return text.rstrip("0").rstrip(".") + letter


def _drawable(value: float) -> bool:
    return abs(value) < 1e306  # so that differences and ticks are finite too


def _unit(size: float) -> tuple[float, str]:
    return next(((unit, letter) for unit, letter in _UNITS if size >= unit), _UNITS[-1])


def _tick_texts(ticks: Sequence[float]) -> list[str]:
    """Write ticks in one unit, with enough digits to distinguish them."""
    step, size = ticks[1] - ticks[0], max(map(abs, ticks))
    if not 1e-9 <= size < 1e15:
        return [f"{tick:.4g}" for tick in ticks]
    unit, letter = _unit(size)
    digits = min(12, max(0, -math.floor(math.log10(step / unit) + 1e-9)))
    return [f"{tick / unit:.{digits}f}{letter}" for tick in ticks]


def _draw(canvas: Canvas, frame: Frame, line: Line, colour: str) -> None:
    before: tuple[int, int, int] | None = None
    for time, value in line.points:
        if not _drawable(value):
            before = None
            continue
        x, y = frame.x(time), frame.y(value)
        if before and time - before[0] <= line.gap_ms:
            canvas.line(before[1], before[2], x, y, colour)
        else:
            canvas.dot(x, y, colour)
        before = time, x, y


def _ticks(low: float, high: float, count: int) -> list[float]:
    """Return round numbers that enclose all values."""
    if low == high:
        margin = abs(low) / 2 or 1.0
        low, high = low - margin, high + margin
    rough = (high - low) / count
    power = 10.0 ** math.floor(math.log10(rough)) if rough > 0 and math.isfinite(rough) else 1.0
    step = next((power * m for m in (1, 2, 5, 10) if power * m >= rough), rough) or 1.0
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    return [n * step for n in range(first, max(last, first + 1) + 1)]


def _times(frame: Frame) -> str:
    """Write the first time, the last, and those that fit between them, in UTC."""
    long = frame.end_ms - frame.start_ms > _DAY_MS
    form = "%m-%d %H:%M" if long else "%H:%M:%S" if frame.end_ms - frame.start_ms < 600_000 else "%H:%M"
    wide = len(_moment(frame.end_ms, form))
    count = max(1, min(6, frame.width // (2 * wide)))
    text = ""
    for n in range(count + 1):
        place = round(n * (frame.width - wide) / count)
        share = (place + wide / 2) / frame.width if 0 < n < count else n / count
        text = text.ljust(place) + _moment(frame.start_ms + round(share * (frame.end_ms - frame.start_ms)), form)
    return f"{text} UTC"


def _moment(time_ms: int, form: str) -> str:
    return datetime.fromtimestamp(time_ms / 1000, UTC).strftime(form)


def _legend(lines: Sequence[Line], count: int) -> Iterator[Text]:
    for number, line in enumerate(lines):
        last = next((value for _, value in reversed(line.points)), math.nan)
        yield Text("━━ ", style=COLOURS[number % len(COLOURS)]) + Text(f"{line.name}  {short(last)}")
    if count > len(lines):
        yield Text(f"and {count - len(lines)} more series, not drawn", style="dim")
