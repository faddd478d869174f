"""What a user should know of an answer that is right nevertheless: Prometheus' annotations, as warnings and infos."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Literal

from lakerunner.series.expression import NOWHERE, Span
from lakerunner.series.numerals import number_text


@dataclass(frozen=True, order=True)
class Raised:
    """Of classic histograms whose counts fell from bucket to bucket: between which bounds, by how much at most, how
    many samples, and the first and last of their times."""

    lowest: float
    highest: float
    fall: float
    samples: int
    first: int
    last: int

    def __add__(self, other: Raised) -> Raised:
        return Raised(
            min(self.lowest, other.lowest),
            max(self.highest, other.highest),
            max(self.fall, other.fall),
            self.samples + other.samples,
            min(self.first, other.first),
            max(self.last, other.last),
        )

    def text(self) -> str:
        fall = f"{self.fall:.2g}" if math.isfinite(self.fall) else number_text(self.fall)
        return (
            f", from buckets {number_text(self.lowest)} to {number_text(self.highest)}, with a max diff of "
            f"{fall}, over {self.samples} samples from {_second(self.first)} to {_second(self.last)}"
        )


def _second(milliseconds: int) -> str:
    return datetime.fromtimestamp(milliseconds // 1000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


@dataclass(frozen=True, order=True)
class Note:
    """`message` without position, as Prometheus words it: "PromQL warning: ..." or "PromQL info: ..." stands before
    it. `raised` is told behind the message."""

    level: Literal["warning", "info"]
    message: str
    start: int = 0
    end: int = 0
    raised: Raised | None = None

    def text(self, query: str) -> str:
        """With the place it is about, as Prometheus writes it: (line:column)."""
        before = query[: self.start]
        column = self.start - (before.rfind("\n") + 1) + 1
        place = f" ({before.count(chr(10)) + 1}:{column})" if self.end else ""
        raised = self.raised.text() if self.raised else ""
        return f"PromQL {self.level}: {self.message}{raised}{place}"


class Notes:
    """Collected during an evaluation; a message counts once, in the order of the first, at the place of the last: so
    does Prometheus, which evaluates what is inside before what is around it. What was raised adds up, at the place of
    the first."""

    def __init__(self) -> None:
        self._notes: dict[tuple[str, str], Note] = {}

    def warn(self, message: str, span: Span = NOWHERE) -> None:
        self.add([Note("warning", message, span.start, span.end)])

    def inform(self, message: str, span: Span = NOWHERE) -> None:
        self.add([Note("info", message, span.start, span.end)])

    def add(self, notes: Iterable[Note]) -> None:
        for note in notes:
            key = note.level, note.message
            before = self._notes.get(key)
            if before is not None and before.raised and note.raised:
                note = replace(before, raised=before.raised + note.raised)
            self._notes[key] = note

    def all(self) -> tuple[Note, ...]:
        return tuple(self._notes.values())
