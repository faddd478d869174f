"""When rows happened, and notes on times that are probably wrong.

A time of 0 means unset, as OTLP says: then another time of the row counts, and at last that at which its object was
last modified. A time before 2000, or more than a day after its object was written, is kept, with a note on its object.
A row that has its object's time because it came without one is never noted.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from lakerunner.model.findings import Note
from lakerunner.model.source import SourceObject
from lakerunner.model.time import iso_time
from lakerunner.pipeline.read.rows import Numbers, Rows
from lakerunner.pipeline.transcode.plausible import FILE_GRACE_NS, OLDEST_NS, TOO_NEW, TOO_OLD

Noted = tuple[SourceObject, Note]


def time_records(rows: Rows) -> Rows:
    """Add timestamp and observed_timestamp: a record's own time, else when it was observed."""
    time, observed = _given(rows, "time_unix_nano"), _given(rows, "observed_time_unix_nano")
    timestamp = np.where(time != 0, time, np.where(observed != 0, observed, rows.fallback_time))
    return rows.plus(timestamp=Numbers(timestamp), observed_timestamp=Numbers(observed, observed != 0))


def time_points(rows: Rows) -> Rows:
    """Add timestamp and start_timestamp."""
    time = _given(rows, "time_unix_nano")
    timestamp = np.where(time != 0, time, rows.fallback_time)
    if "start_time_unix_nano" not in rows.columns:
        return rows.plus(timestamp=Numbers(timestamp))
    start = _given(rows, "start_time_unix_nano")
    return rows.plus(timestamp=Numbers(timestamp), start_timestamp=Numbers(start, start != 0))


def time_spans(rows: Rows) -> Rows:
    """Add timestamp, end_timestamp and duration, which is null unless both times are set, and may be negative. A span
    without a start stands where it ended."""
    start, end = _given(rows, "start_time_unix_nano"), _given(rows, "end_time_unix_nano")
    timestamp = np.where(start != 0, start, np.where(end != 0, end, rows.fallback_time))
    return rows.plus(
        timestamp=Numbers(timestamp),
        end_timestamp=Numbers(end, end != 0),
        duration=Numbers(end - start, (start != 0) & (end != 0)),
    )


def _given(rows: Rows, name: str) -> Any:
    return rows.column(name, Numbers).values.view(np.int64)


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
