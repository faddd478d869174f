"""What was read of a raw object that is done, and what was not understood: rejected lines, and notes on guesses.

All of it is bounded whatever the object holds, so it goes with the commit into the index and from there to people.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from lakerunner.model.plural import plural

MAX_REJECTS = 100  # that are kept of one object; all are counted
MAX_NOTES = 16
MAX_EXCERPT = 200  # bytes of a rejected line
MAX_TEXT = 500  # characters of a reason or note


@dataclass(frozen=True)
class Reject:
    """A line that could not be read. `line` counts from 1; `offset` is the byte of the unpacked object at which it
    starts; `excerpt` is its beginning, with U+FFFD for what is not UTF-8."""

    line: int
    offset: int
    reason: str
    excerpt: str


@dataclass(frozen=True)
class Rejects:
    """`count` lines could not be read, of `lines` that are not blank; `first` are the first of them in order."""

    count: int = 0
    lines: int = 0
    first: tuple[Reject, ...] = ()

    def __post_init__(self) -> None:
        if not len(self.first) <= self.count <= self.lines or len(self.first) > MAX_REJECTS:
            raise ValueError(f"{len(self.first)} kept of {self.count} rejects of {self.lines} lines")

    def __bool__(self) -> bool:
        return self.count > 0

    def __str__(self) -> str:
        if not self.first:
            return ""
        first = f"line {self.first[0].line}: {self.first[0].reason}"
        return first if self.count == 1 else f"{first}; {plural(self.count - 1, 'further bad line')}"


@dataclass(frozen=True)
class Note:
    """Something of an object that is done was guessed or left as it is: `count` records, the first at `line` (0 in
    formats that have no lines). `kind` is a short constant name, such as `no service`."""

    kind: str
    count: int
    line: int
    text: str


@dataclass(frozen=True)
class Findings:
    """All of one object. `rows` is how many rows of segments it gave; None where that is not known."""

    rejects: Rejects = Rejects()
    notes: tuple[Note, ...] = ()
    rows: int | None = None

    def with_notes(self, notes: Iterable[Note]) -> Findings:
        """Add those of these notes whose kind is not noted yet, as far as there is room."""
        kinds = {note.kind for note in self.notes}
        new = (note for note in notes if note.kind not in kinds)
        return replace(self, notes=(*self.notes, *new)[:MAX_NOTES])


NOTHING = Findings()
