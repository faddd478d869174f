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
    """Collected during an evaluation; a message counts once, in the order of the first, at the place of the last: so
    does Prometheus, which evaluates what is inside before what is around it."""

    def __init__(self) -> None:
        self._notes: dict[tuple[str, str], Note] = {}

    def warn(self, message: str, span: Span = NOWHERE) -> None:
        self.add([Note("warning", message, span.start, span.end)])

    def inform(self, message: str, span: Span = NOWHERE) -> None:
        self.add([Note("info", message, span.start, span.end)])

    def add(self, notes: Iterable[Note]) -> None:
        self._notes.update({(note.level, note.message): note for note in notes})

    def all(self) -> tuple[Note, ...]:
        return tuple(self._notes.values())
