"""Notes on rows whose time is probably wrong: before 2000, or more than a day after their object was written.

Comes in: the times of the rows of some objects. Goes out: for each object at most one note of either kind. What always
holds: a row that has its object's time because it came without one is never noted.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from lakerunner.model.findings import Note
from lakerunner.model.source import SourceObject
from lakerunner.model.time import iso_time
from lakerunner.pipeline.transcode.plausible import FILE_GRACE_NS, OLDEST_NS, TOO_NEW, TOO_OLD

Noted = tuple[SourceObject, Note]


def note_times(times: Any, sources: Sequence[SourceObject], counts: Sequence[int], before: int = 0) -> list[Noted]:
    """Return the notes on these rows, which belong to the sources in their order, so many to each. `before` is how many
    records of the first source were read earlier."""
    latest_ns = min(source.modified_ns for source in sources) + FILE_GRACE_NS
    if times.min() >= OLDEST_NS and times.max() <= latest_ns:
        return []  # nearly always, so nothing else is computed
    notes: list[Noted] = []
    begin = 0
    for source, count in zip(sources, counts, strict=True):
        own = times[begin : begin + count]
        given = own != source.modified_ns
        for kind, wrong in ((TOO_OLD, own < OLDEST_NS), (TOO_NEW, own > source.modified_ns + FILE_GRACE_NS)):
            places = np.flatnonzero(wrong & given)
            if len(places):
                first = int(places[0])
                text = f"record {before + first + 1} has the time {iso_time(int(own[first]))}"
                notes.append((source, Note(kind, len(places), 0, text)))
        begin, before = begin + count, 0
    return notes


def add_up(notes: Iterable[Noted]) -> tuple[Noted, ...]:
    """Join notes of one kind on one source, which stand in the order of its records."""
    found: dict[tuple[SourceObject, str], Note] = {}
    for source, note in notes:
        same = found.get((source, note.kind))
        found[source, note.kind] = replace(same, count=same.count + note.count) if same else note
    return tuple((source, note) for (source, _), note in found.items())
