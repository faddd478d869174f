"""What a user should know of an answer that is right nevertheless: Prometheus' annotations, as warnings and infos."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from lakerunner.plan.vectors.expression import NOWHERE, Span


@dataclass(frozen=True, order=True)
class Note:
    """`message` without position, as Prometheus words it: "PromQL warning: ..." or "PromQL info: ..." stands before
    it."""

    level: Literal["warning", "info"]
    message: str
    start: int = 0
    end: int = 0

    def text(self, query: str) -> str:
        """With the place it is about, as Prometheus writes it: (line:column)."""
        before = query[: self.start]
        column = self.start - (before.rfind("\n") + 1) + 1
        place = f" ({before.count(chr(10)) + 1}:{column})" if self.end else ""
        return f"PromQL {self.level}: {self.message}{place}"


class Notes:
    """Collected during an evaluation; the same note counts once, in the order of the first."""

    def __init__(self) -> None:
        self._notes: dict[Note, None] = {}

    def warn(self, message: str, span: Span = NOWHERE) -> None:
        self._notes[Note("warning", message, span.start, span.end)] = None

    def inform(self, message: str, span: Span = NOWHERE) -> None:
        self._notes[Note("info", message, span.start, span.end)] = None

    def add(self, notes: Iterable[Note]) -> None:
        self._notes.update(dict.fromkeys(notes))

    def all(self) -> tuple[Note, ...]:
        return tuple(self._notes)
