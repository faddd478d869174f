"""Notes in Prometheus' words, which clients compare by the letter: the texts, and how a note is written."""

from __future__ import annotations

import json
import math
from datetime import UTC, datetime

from lakerunner.model.labels import NAME, TYPE, Labels, value_of
from lakerunner.series.expression import Span
from lakerunner.series.notes import Level, Misfit, Note, Notes, RaisedBuckets, Words
from lakerunner.series.numerals import number_text

WORDS: Words = {
    Misfit.HISTOGRAMS_IGNORED: ("info", "ignored histogram in {op} aggregation"),
    Misfit.SAMPLES_MIXED: ("warning", "encountered a mix of histograms and floats for aggregation"),
    Misfit.SCHEMAS_MIXED: (
        "warning",
        'vector contains a mix of histograms with exponential and custom buckets schemas for metric name "{name}"',
    ),
    Misfit.BOUNDS_RECONCILED: ("info", "mismatched custom buckets were reconciled during {operation}"),
    Misfit.RESETS_COLLIDE: ("warning", "conflicting counter resets during histogram {operation}"),
    Misfit.RATIO_CAPPED: ("warning", "ratio value should be between -1 and 1, got {got}, capping to {limit}"),
    Misfit.QUANTILE_OUTSIDE: ("warning", "quantile value should be between 0 and 1, got {got}"),
    Misfit.TYPES_UNFIT: (
        "info",
        'incompatible sample types encountered for binary operator "{op}": {left} {op} {right}',
    ),
    Misfit.LAYOUTS_UNFIT: ("warning", "incompatible bucket layout encountered for binary operator {op}"),
}


def note_text(note: Note, query: str) -> str:
    """Write a note with its position: (line:column)."""
    before = query[: note.start]
    column = note.start - (before.rfind("\n") + 1) + 1
    place = f" ({before.count(chr(10)) + 1}:{column})" if note.end else ""
    raised = raised_text(note.raised) if note.raised else ""
    return f"PromQL {note.level}: {note.message}{raised}{place}"


def raised_text(raised: RaisedBuckets) -> str:
    fall = f"{raised.fall:.2g}" if math.isfinite(raised.fall) else number_text(raised.fall)
    return (
        f", from buckets {number_text(raised.lowest)} to {number_text(raised.highest)}, with a max diff of "
        f"{fall}, over {raised.samples} samples from {_second(raised.first)} to {_second(raised.last)}"
    )


def _second(milliseconds: int) -> str:
    return datetime.fromtimestamp(milliseconds // 1000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


_COUNTER_NAMES = ("_total", "_sum", "_count", "_bucket")
_COUNTER_TYPES = ("counter", "histogram")
MetricNote = tuple[Level, str]  # a note that ends with the metric's name
MIXED_SAMPLES: MetricNote = "warning", "encountered a mix of histograms and floats for metric name"
MIXED_SCHEMAS: MetricNote = (
    "warning",
    "vector contains a mix of histograms with exponential and custom buckets schemas for metric name",
)
IGNORED_HISTOGRAMS: MetricNote = (
    "info",
    "ignored histograms in a range containing both floats and histograms for metric name",
)
NOT_A_COUNTER: MetricNote = "warning", "this native histogram metric is not a counter:"
NOT_A_GAUGE: MetricNote = "warning", "this native histogram metric is not a gauge:"
OVERLAPPING_STARTS: MetricNote = (
    "warning",
    "sample has start time that overlaps with previous sample timestamp for metric",
)


def note_metric(notes: Notes, note: MetricNote, name: str, span: Span) -> None:
    level, text = note
    notes.add([Note(level, f"{text} {_quoted(name)}", span.start, span.end)])


def note_possible_non_counter(notes: Notes, labels: Labels, span: Span) -> None:
    """Note a series that might not be a counter: by its label `__type__` if it has one, otherwise by its name."""
    name, kind = value_of(labels, NAME), value_of(labels, TYPE)
    if not name:
        return
    if kind and kind not in _COUNTER_TYPES:
        notes.inform(
            'metric might not be a counter, __type__ label is not set to "counter" or "histogram",'
            f" got {_quoted(kind)}: {_quoted(name)}",
            span,
        )
    if not kind and not name.endswith(_COUNTER_NAMES):
        notes.inform(
            "metric might not be a counter, name does not end in _total/_sum/_count/_bucket: " + _quoted(name), span
        )


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)
