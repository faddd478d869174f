"""Notes in Prometheus' words: its texts for what an evaluation finds, and how it writes a note."""

from __future__ import annotations

import math
from datetime import UTC, datetime

from lakerunner.series.notes import Misfit, Note, Raised, Words
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
    """With the place it is about: (line:column)."""
    before = query[: note.start]
    column = note.start - (before.rfind("\n") + 1) + 1
    place = f" ({before.count(chr(10)) + 1}:{column})" if note.end else ""
    raised = raised_text(note.raised) if note.raised else ""
    return f"PromQL {note.level}: {note.message}{raised}{place}"


def raised_text(raised: Raised) -> str:
    fall = f"{raised.fall:.2g}" if math.isfinite(raised.fall) else number_text(raised.fall)
    return (
        f", from buckets {number_text(raised.lowest)} to {number_text(raised.highest)}, with a max diff of "
        f"{fall}, over {raised.samples} samples from {_second(raised.first)} to {_second(raised.last)}"
    )


def _second(milliseconds: int) -> str:
    return datetime.fromtimestamp(milliseconds // 1000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
