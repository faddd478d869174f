"""What a transcoder returns, and the collector that it records bad lines and guesses in.

A transcoder of lines calls `at` for each line that is not blank, then adds the line's record, and calls `reject` where
that is Unfit: the other lines are kept. `note` counts what was guessed of a record, or left as an attribute because its
field could not hold it. Memory is bounded by MAX_REJECTS and MAX_NOTES, whatever the object holds.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from lakerunner.model.errors import Corrupt
from lakerunner.model.findings import (
    MAX_EXCERPT,
    MAX_NOTES,
    MAX_REJECTS,
    MAX_TEXT,
    NOTHING,
    Findings,
    Note,
    Reject,
    Rejects,
)


@dataclass(frozen=True)
class Transcoded:
    """`data` is an OTLP export request of all that could be read."""

    data: bytes
    findings: Findings = NOTHING

    def whole(self) -> bytes:
        """The request; Corrupt if a line could not be read."""
        if self.findings.rejects:
            raise Corrupt(str(self.findings.rejects))
        return self.data


class Reading:
    """Collects the findings of one object."""

    def __init__(self) -> None:
        self._line = self._offset = self._lines = self._rejected = 0
        self._first: list[Reject] = []
        self._notes: dict[str, list[Any]] = {}  # kind: count, first line, text

    def at(self, line: int, offset: int) -> None:
        """Go on with the record that starts in this line, counted from 1, at this byte of the object."""
        self._line, self._offset = line, offset
        self._lines += 1

    def reject(self, reason: str, content: bytes) -> None:
        """Record that the current line, which begins with this content, could not be read."""
        self._rejected += 1
        if len(self._first) < MAX_REJECTS:
            excerpt = bytes(content[:MAX_EXCERPT]).decode(errors="replace")
            self._first.append(Reject(self._line, self._offset, reason[:MAX_TEXT], excerpt))

    def note(self, kind: str, text: str, line: int = 0) -> None:
        """Count one more record of this kind; the first one's line (0: the current one) and text are kept."""
        found = self._notes.get(kind)
        if found is not None:
            found[0] += 1
        elif len(self._notes) < MAX_NOTES:
            self._notes[kind] = [1, line or self._line, text[:MAX_TEXT]]

    def transcoded(self, data: bytes) -> Transcoded:
        """What the transcoder returns when all is read."""
        rejects = Rejects(self._rejected, self._lines, tuple(self._first))
        notes = (Note(kind, *values) for kind, values in self._notes.items())
        return Transcoded(data, Findings(rejects, tuple(notes)))
