"""Ask the engine itself, over a state in memory."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Protocol

import numpy as np

from conformance.answer import Answer
from conformance.memory import MemorySource
from conformance.script import State
from lakerunner.model.errors import UserError
from lakerunner.model.labels import Labels
from lakerunner.promql.functions import FUNCTIONS
from lakerunner.promql.language import PROMQL
from lakerunner.promql.parse import parse
from lakerunner.promql.plan import range_samples
from lakerunner.promql.resolve import resolve
from lakerunner.promql.selection.notes import note_text
from lakerunner.series.evaluation.evaluate import evaluate
from lakerunner.series.expression import Kind
from lakerunner.series.function import kind_of
from lakerunner.series.histograms.histogram import Histogram
from lakerunner.series.notes import Notes
from lakerunner.series.values import Samples, Scalar, Steps, String, Value, Vector, Windows, sort_by_labels


class Subject(Protocol):
    def ask(self, state: State, query: str, steps: Steps, *, instant: bool) -> Answer:
        """Return the answer; an `error` in it is the caller's fault. Any other problem is raised."""


class EngineSubject:
    """Keeps the source of the state that was used last."""

    def __init__(self) -> None:
        self._state: State | None = None
        self._source = MemorySource(State(Path(), 0))

    def ask(self, state: State, query: str, steps: Steps, *, instant: bool) -> Answer:
        if state != self._state:
            self._state, self._source = state, MemorySource(state)
        try:
            expression = parse(query)
            kind = kind_of(expression, FUNCTIONS)
            if not instant and kind not in (Kind.SCALAR, Kind.VECTOR):
                raise UserError(f'invalid expression type "{kind}" for range query, must be Scalar or instant Vector')
            value, notes = evaluate(
                resolve(expression, steps, instant), steps, self._source, PROMQL, delayed_names=state.delayed_names
            )
            return answered(value, steps, notes, query, instant=instant)
        except UserError as error:
            return Answer(error=error.message)


def answered(value: Value, steps: Steps, notes: Notes, query: str, *, instant: bool) -> Answer:
    warnings = [note_text(note, query) for note in notes.all() if note.level == "warning"]
    infos = [note_text(note, query) for note in notes.all() if note.level == "info"]
    match value:
        case String(text):
            return Answer("string", string=text, warnings=warnings, infos=infos)
        case Scalar(numbers) if instant:
            return Answer("scalar", scalar=float(numbers[0]), warnings=warnings, infos=infos)
        case Scalar(numbers):
            value = Vector([()], numbers[None, :], np.ones((1, len(steps)), bool))
        case Windows():
            return Answer("matrix", _window(value), warnings=warnings, infos=infos)
    assert isinstance(value, Vector)
    vector = value if instant else sort_by_labels(value)
    times = steps.times.tolist()
    series = [(labels, _points(vector, row, times)) for row, labels in enumerate(vector.labels)]
    return Answer("vector" if instant else "matrix", series, math.nan, "", warnings, infos)


def _points(vector: Vector, row: int, times: list[int]) -> list[tuple[int, float | Histogram]]:
    points: list[tuple[int, float | Histogram]] = []
    for step in np.flatnonzero(vector.present[row]).tolist():
        histogram = None if vector.histograms is None else vector.histograms[row, step]
        points.append((times[step], float(vector.values[row, step]) if histogram is None else histogram))
    return points


def _window(windows: Windows) -> list[tuple[Labels, list[tuple[int, float | Histogram]]]]:
    """Return the samples of the only step."""
    samples = range_samples(windows)
    return [
        (labels, [_sample(samples, place) for place in range(*samples.offsets[row : row + 2].tolist())])
        for row, labels in enumerate(samples.labels)
    ]


def _sample(samples: Samples, place: int) -> tuple[int, float | Histogram]:
    histogram = None if samples.histograms is None else samples.histograms[place]
    return int(samples.times[place]), float(samples.values[place]) if histogram is None else histogram
