"""Findings as columns of a source's row: rejects and notes are JSON, whose size model/findings.py bounds."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from lakerunner.model.findings import Findings, Note, Reject, Rejects


def finding_arrays(findings: Sequence[Findings]) -> dict[str, list[Any]]:
    """The arrays of the columns `rows`, `lines`, `rejected`, `rejects` and `notes`; null where there is nothing."""
    return {
        "rows": [one.rows for one in findings],
        "lines": [one.rejects.lines or None for one in findings],
        "rejected": [one.rejects.count or None for one in findings],
        "rejects": [_text([vars(reject) for reject in one.rejects.first]) for one in findings],
        "notes": [_text([vars(note) for note in one.notes]) for one in findings],
    }


def notes_of(values: Sequence[Mapping[str, Any]] | None) -> tuple[Note, ...]:
    return tuple(Note(**value) for value in values or ())


def rejects_of(lines: int, rejected: int, values: Sequence[Mapping[str, Any]]) -> Rejects:
    return Rejects(rejected, lines, tuple(Reject(**value) for value in values))


def _text(values: list[dict[str, Any]]) -> str | None:
    """ASCII with escapes, so that PostgreSQL takes whatever a damaged line holds."""
    return json.dumps(values, separators=(",", ":")) if values else None
