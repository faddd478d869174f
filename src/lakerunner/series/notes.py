"""Warnings and infos about an answer that is nevertheless correct.

Comes in: what an evaluation finds in samples that does not fit, and the texts of the language. Goes out: notes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Literal

from lakerunner.series.expression import NOWHERE, Span

Level = Literal["warning", "info"]


class Misfit(StrEnum):
    """What operators and aggregations find in samples that do not fit them. The comments list the facts that a text may
    name."""

    HISTOGRAMS_IGNORED = "histograms_ignored"  # op
    SAMPLES_MIXED = "samples_mixed"
    SCHEMAS_MIXED = "schemas_mixed"  # name
    BOUNDS_RECONCILED = "bounds_reconciled"  # operation
    RESETS_COLLIDE = "resets_collide"  # operation
    RATIO_CAPPED = "ratio_capped"  # got, limit
    QUANTILE_OUTSIDE = "quantile_outside"  # got
    TYPES_UNFIT = "types_unfit"  # op, left, right
    LAYOUTS_UNFIT = "layouts_unfit"  # op


Words = Mapping[Misfit, tuple[Level, str]]


@dataclass(frozen=True, order=True)
class RaisedBuckets:
    """Classic histograms whose cumulative counts decreased and were raised: between which bounds, by how much at most,
    in how many samples, and the times of the first and last of them."""

    lowest: float
    highest: float
    fall: float
    samples: int
    first: int
    last: int

    def __add__(self, other: RaisedBuckets) -> RaisedBuckets:
        return RaisedBuckets(
            min(self.lowest, other.lowest),
            max(self.highest, other.highest),
            max(self.fall, other.fall),
            self.samples + other.samples,
            min(self.first, other.first),
            max(self.last, other.last),
        )


@dataclass(frozen=True, order=True)
class Note:
    """A note in the language's words. `start` and `end` are its place in the text; `end` is 0 if it has none."""

    level: Level
    message: str
    start: int = 0
    end: int = 0
    raised: RaisedBuckets | None = None


class Notes:
    """Collects the notes of an evaluation, in the language's words.

    A message is kept once, in the order of its first report, at the place of its last, which is the outermost: inner
    expressions are evaluated first. RaisedBuckets of the same message add up, at the place of the first."""

    def __init__(self, words: Words) -> None:
        self._words = words
        self._notes: dict[tuple[str, str], Note] = {}

    def report(self, misfit: Misfit, span: Span, **facts: str) -> None:
        """Add the note of this misfit if the language has a text for it."""
        if misfit in self._words:
            level, text = self._words[misfit]
            self.add([Note(level, text.format(**facts), span.start, span.end)])

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
