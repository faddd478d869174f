"""Rows of a listing, as a worker gives them: JSON values, so that they can travel. docs/formats/workers.md has them.

series: [[name, value], ...]; label_names, label_values: text; metadata: [metric, type, unit, help]; exemplars: [labels,
[[labels, value, ms], ...]], the value as text, since JSON has no NaN; metric_names: text; sketches: [metric, window's
end in ms, sketch in base64]; label_counts: [whose, label, values or null, sketch of them in base64 or null].
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterator, Sequence
from typing import Any

from lakerunner.model.segment import Segment
from lakerunner.model.tiling import Tiles
from lakerunner.query.metrics.active import label_counts, names_of, sketches_of
from lakerunner.query.metrics.exemplars import exemplars_of
from lakerunner.query.metrics.listing import label_names, label_values, metadata_of, series_of
from lakerunner.query.metrics.segments import MetricSegments
from lakerunner.query.metrics.selection import Selection
from lakerunner.query.metrics.unit import List


def rows_of(
    task: List, metrics: MetricSegments, segments: Sequence[Segment], selection: Selection, tiles: Tiles
) -> Iterator[Any]:
    matchers, between = selection.matchers, (selection.start, selection.end)
    match task.what:
        case "series":
            yield from series_of(metrics, segments, matchers, *between)
        case "label_names":
            yield from sorted(label_names(metrics, segments, matchers))
        case "label_values":
            yield from sorted(label_values(metrics, segments, matchers, task.label, between))
        case "metadata":
            for family in metadata_of(metrics, segments):
                yield [family.name, family.type, family.unit, family.help]
        case "exemplars":
            for labels, exemplars in exemplars_of(metrics, segments, matchers, selection.start + 1, selection.end):
                yield [labels, [[one.labels, repr(one.value), one.time] for one in exemplars]]
        case "metric_names":
            yield from sorted(names_of(metrics, segments, task.label))
        case "sketches":
            for metric, end, sketch in sketches_of(metrics, segments, task, tiles):
                yield [metric, end, b64encode(sketch).decode()]
        case "label_counts":
            for whose, label, values, many in label_counts(metrics, segments, task, tiles):
                yield [whose, label, values, many and b64encode(many).decode()]
