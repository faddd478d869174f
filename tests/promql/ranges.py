"""Range vectors for tests, and calls of functions over them."""

from __future__ import annotations

import math
import struct
from collections.abc import Sequence
from typing import Any

import numpy as np
from hypothesis import strategies as st

from lakerunner.model.labels import labels_of
from lakerunner.promql.functions import FUNCTIONS
from lakerunner.promql.selection.notes import WORDS
from lakerunner.series.bounds import Bounds
from lakerunner.series.expression import Call, Number, Range, Selector, Span
from lakerunner.series.function import Invocation
from lakerunner.series.histograms.histogram import Histogram
from lakerunner.series.notes import Notes
from lakerunner.series.values import Samples, Scalar, Steps, Value, Vector, Windows

Point = tuple[int, Any] | tuple[int, Any, int]  # time in ms, a float or a histogram, a start time
LOOKBACK = 300_000
SPAN = Span(5, 9)


class Evaluation:
    def __init__(self) -> None:
        self.notes = Notes(WORDS)
        self.bounds = Bounds()


def samples_of(series: Sequence[Sequence[Point]], name: str = "made_total") -> Samples:
    points = [point for one in series for point in one]
    histograms = np.array([None, *(p[1] if isinstance(p[1], Histogram) else None for p in points)], object)[1:]
    starts = np.array([p[2] if len(p) > 2 else 0 for p in points], np.int64)
    return Samples(
        [labels_of({"__name__": name, "series": str(n)}) for n in range(len(series))],
        np.cumsum([0, *map(len, series)]).astype(np.int64),
        np.array([p[0] for p in points], np.int64),
        np.array([0.0 if isinstance(p[1], Histogram) else p[1] for p in points], float),
        histograms if any(isinstance(p[1], Histogram) for p in points) else None,
        starts if any(len(p) > 2 for p in points) else None,
    )


def windows_of(samples: Samples, steps: Steps, range_: int, *, extended: Any = "", offset: int = 0) -> Windows:
    ends = steps.times - offset
    expression = Range(Selector((), extended=extended, offset=offset), range_, SPAN)
    return Windows(samples, ends, range_, LOOKBACK, expression)


def call(name: str, windows: Windows, steps: Steps, *scalars: float, notes: Notes | None = None) -> Vector:
    """Scalars stand before the range where the function wants them there."""
    numbers = [Scalar(np.full(len(steps), number)) for number in scalars]
    arguments: list[Value] = [*numbers, windows] if name == "quantile_over_time" else [windows, *numbers]
    written = [Number(one.values[0], span=SPAN) if isinstance(one, Scalar) else windows.expression for one in arguments]
    evaluation = Evaluation()
    evaluation.notes = notes or evaluation.notes
    given: Any = evaluation
    result = FUNCTIONS[name].evaluate(Invocation(Call(name, tuple(written)), tuple(arguments), steps, given))
    assert isinstance(result, Vector)
    return result


def row(name: str, points: Sequence[Point], range_: int, *scalars: float, at: Any = 0, **how: Any) -> list[Any]:
    """Of one series, at one time or at several of the same distance: None where there is nothing."""
    times = [at] if isinstance(at, int) else list(at)
    steps = Steps(times[0], times[-1], times[1] - times[0] if len(times) > 1 else 1)
    notes = how.pop("notes", None)
    windows = windows_of(samples_of([points], how.pop("metric", "made_total")), steps, range_, **how)
    return cells(call(name, windows, steps, *scalars, notes=notes))[0]


def cells(vector: Vector) -> list[list[Any]]:
    return [
        [
            None
            if not vector.present[n, s]
            else vector.histograms[n, s]
            if vector.histograms is not None and vector.histograms[n, s] is not None
            else float(vector.values[n, s])
            for s in range(vector.values.shape[1])
        ]
        for n in range(len(vector))
    ]


def bits(value: float | None) -> bytes | None:
    """Equal only for the same number; every NaN is the same."""
    return None if value is None else b"NaN" if math.isnan(value) else struct.pack("<d", value)


# ---- what hypothesis draws

numbers = st.one_of(
    st.integers(0, 50).map(float),
    st.floats(-1e6, 1e6),
    st.floats(),
    st.sampled_from([0.0, -0.0, 1e308, -1e308, math.inf, -math.inf, math.nan]),
)


@st.composite
def series(draw: Any, values: Any = numbers, starts: bool = False) -> list[Point]:
    gaps = draw(st.lists(st.integers(1, 40), max_size=25))
    time = -50
    points: list[Any] = []  # Points, which end with a start time if `starts`
    for gap in gaps:
        before, time = time, time + gap
        start = (
            draw(st.sampled_from([0, before, before + 1, before - 3, time - 1, time, time + 1, points[-1][2]]))
            if starts and points
            else 0
        )
        points.append((time, draw(values), start) if starts else (time, draw(values)))
    return points


@st.composite
def shapes(draw: Any) -> tuple[Steps, int]:
    """Steps and a range."""
    start = draw(st.integers(-100, 300))
    step = draw(st.integers(1, 90))
    return Steps(start, start + step * draw(st.integers(0, 8)), step), draw(st.integers(1, 300))


def inside(points: Sequence[Point], end: int, range_: int) -> list[Point]:
    return [point for point in points if end - range_ < point[0] <= end]
