"""Groups of time as server-sent events, one for each point, as Lakerunner's Grafana plugin reads them:

    data: {"type":"result","data":{"label":"up{job=\\"a\\"}","tags":{...},"timestamp":1714564800000,"value":1}}

A double that is no JSON number is its text; a point that is a histogram has `histogram` instead of `value`, a query
that is a text `text`. Chunks hold whole events.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import orjson

from lakerunner.api.formats.prometheus_json import as_vector, histogram_json, labels_json
from lakerunner.api.formats.series_rows import Rows, Texts, rows_of_samples, rows_of_vector, some_samples, written_rows
from lakerunner.model.labels import Labels, labels_text
from lakerunner.query.series_answer import Group
from lakerunner.series.arrays import Ints
from lakerunner.series.values import Samples, String

_POINTS = 4000  # of one chunk, about
_TAIL = b"}}\n\n"


def group_events(group: Group) -> Iterator[bytes]:
    match group.value:
        case String(text):
            said = {"text": text, "timestamp": group.steps.start}
            yield b"data: " + orjson.dumps({"type": "result", "data": said}) + b"\n\n"
        case Samples():
            at_once = _at_once(len(group.value.times), len(group.value))
            for start in range(0, len(group.value), at_once):
                part = some_samples(group.value, start, min(start + at_once, len(group.value)))
                yield _events(rows_of_samples(part), part.times)
        case _:
            vector = as_vector(group)
            at_once = _at_once(vector.values.size, len(vector))
            for start in range(0, len(vector), at_once):
                rows = rows_of_vector(vector.rows(np.arange(start, min(start + at_once, len(vector)))))
                yield _events(rows, group.steps.times)


def _at_once(points: int, series: int) -> int:
    """How many series go into a chunk."""
    return max(1, _POINTS * series // max(1, points))


def _events(rows: Rows, times: Ints) -> bytes:
    stamps = Texts.of([str(time).encode() for time in times.tolist()])
    heads = Texts.of([_head(labels) for labels in rows.labels])
    parts: list[bytes] = []
    for row, floats in enumerate(written_rows(rows, stamps, heads, b',"value":', _TAIL, quotes=True)):
        parts.append(floats)
        for number, one in rows.histograms_of(row):
            parts.append(heads[row] + stamps[number] + b',"histogram":' + histogram_json(one) + _TAIL)
    return b"".join(parts)


def _head(labels: Labels) -> bytes:
    label = orjson.dumps(labels_text(labels))
    return b'data: {"type":"result","data":{"label":%s,"tags":%s,"timestamp":' % (label, labels_json(labels))
