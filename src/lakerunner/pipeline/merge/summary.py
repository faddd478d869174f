"""What the index is told about a merged segment: from what it knows of the segments that were merged.

Comes in: their index rows and the columns of the new one. Goes out: statistics and fingerprints, as
pipeline/steps/summary.py makes them. A list holds the first 100 values in order, so the first 100 of all lists are
those of the whole; how many values there are follows only where every list is complete. What does not follow is left
out: a reader takes a count that is absent for unknown (docs/formats/index.md).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from lakerunner.model.fingerprint import INCOMPLETE, VALUES
from lakerunner.model.segment import Column, Segment
from lakerunner.model.signal import ATTRIBUTES, SCOPES, SignalSpec
from lakerunner.pipeline.steps.summary import MAX_FINGERPRINTS, MAX_NAME, MAX_VALUES


def merged_summary(
    spec: SignalSpec, inputs: Sequence[Segment], columns: Sequence[Column]
) -> tuple[dict[str, Any], tuple[int, ...]]:
    """(statistics, fingerprints) of the segment with these columns that holds rows of these segments: of a merge all
    that were merged, of a rollup those that it was made for, which have all of its series."""
    statistics: dict[str, Any] = {}
    for word in (*VALUES[spec.name].values(), "label"):
        statistics |= _listed(word, inputs)
    keys = [_keys(segment) for segment in inputs]
    known = [each for each in keys if each is not None]
    if len(known) == len(keys):
        statistics["key_count"] = len(_of_columns(columns).union(*known))
    return statistics, _fingerprints(inputs)


def _listed(word: str, inputs: Sequence[Segment]) -> dict[str, Any]:
    """The values that are called by this word: those that stand first, and how many there are if that is known."""
    lists = [segment.statistics.get(f"{word}s") for segment in inputs]
    if None in lists:
        return {}
    values = sorted({value for each in lists for value in each or ()})
    told: dict[str, Any] = {f"{word}s": values[:MAX_VALUES]}
    if all(_complete(word, segment) for segment in inputs):
        told[f"{word}_count"] = len(values)
    return told


def _complete(word: str, segment: Segment) -> bool:
    """Whether the statistics have all values, and none of them cut."""
    values = segment.statistics.get(f"{word}s", ())
    return len(values) == segment.statistics.get(f"{word}_count") and all(len(value) < MAX_NAME for value in values)


def _keys(segment: Segment) -> set[str] | None:
    """The names, with their prefix, of all attributes that occur in the segment; None where the index does not know
    them all: those that have a column and the labels may be fewer than there are."""
    labels = segment.statistics.get("labels", ())
    if any(len(label) >= MAX_NAME for label in labels):
        return None
    keys = _of_columns(segment.columns) | {ATTRIBUTES.prefix + label for label in labels}
    return keys if len(keys) == segment.statistics.get("key_count") else None


def _of_columns(columns: Sequence[Column]) -> set[str]:
    return {
        column.name
        for column in columns
        if column.type and any(column.name.startswith(scope.prefix) for scope in SCOPES)
    }


def _fingerprints(inputs: Sequence[Segment]) -> tuple[int, ...]:
    """All of them. No segment has none: one whose own were not read along counts as incomplete."""
    found = {number for segment in inputs for number in segment.fingerprints}
    if INCOMPLETE in found or len(found) > MAX_FINGERPRINTS or not all(segment.fingerprints for segment in inputs):
        return (INCOMPLETE,)
    return tuple(sorted(found))
