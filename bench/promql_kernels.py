"""How long the functions over ranges take for float samples: the kernels against the plain way, in one run.

    plain    one numpy expression for each window of each series, over a hundredth of the series, times a hundred

Samples are counters (rate, increase) or gauges (the others) every 15 s, with a reset in 5,000. CPU time of one thread,
the best of three turns.

    python bench/promql_kernels.py [--series 3500] [--steps 720] [--samples 2880]
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from lakerunner.promql.functions import FUNCTIONS
from lakerunner.promql.selection.notes import WORDS
from lakerunner.series.arrays import Floats, Ints
from lakerunner.series.expression import Call, Range, Selector
from lakerunner.series.function import Invocation
from lakerunner.series.notes import Notes
from lakerunner.series.values import Samples, Scalar, Steps, Value, Windows, window_bounds

EVERY, RANGE, TURNS, PART = 15_000, 300_000, 3, 100
OPENING = 1_767_225_600_000


class _Evaluation:
    def __init__(self) -> None:
        self.notes = Notes(WORDS)


class Window(NamedTuple):
    times: Ints
    values: Floats
    start: int
    end: int


def _rate(of: Window) -> float:
    times, values, start, end = of
    falls = np.flatnonzero(values[1:] < values[:-1])
    increase = values[-1] - values[0] + values[falls].sum()
    covered = times[-1] - times[0]
    before, after = min(times[0] - start, covered), min(end - times[-1], covered)
    return float(increase * (covered + before + after) / covered / (end - start) * 1000)


PLAIN: dict[str, Callable[[Window], float]] = {
    "rate": _rate,
    "delta": lambda of: float(of.values[-1] - of.values[0]),
    "irate": lambda of: float((of.values[-1] - of.values[-2]) / (of.times[-1] - of.times[-2]) * 1000),
    "resets": lambda of: float((of.values[1:] < of.values[:-1]).sum()),
    "sum_over_time": lambda of: float(of.values.sum()),
    "avg_over_time": lambda of: float(of.values.mean()),
    "min_over_time": lambda of: float(of.values.min()),
    "max_over_time": lambda of: float(of.values.max()),
    "count_over_time": lambda of: float(len(of.values)),
    "last_over_time": lambda of: float(of.values[-1]),
    "stddev_over_time": lambda of: float(of.values.std()),
    "quantile_over_time": lambda of: float(np.quantile(of.values, 0.9)),
    "deriv": lambda of: float(np.polyfit(of.times - of.start, of.values, 1)[0]),
}


def made(series: int, count: int) -> tuple[Samples, Samples]:
    """Build counters and gauges with the same times."""
    rng = np.random.default_rng(7)
    times = np.tile(OPENING + EVERY * np.arange(count), series) + rng.integers(0, 500, series * count)
    steps = rng.integers(0, 100, series * count).astype(float)
    counters = np.cumsum(steps)
    counters -= np.maximum.accumulate(np.where(rng.random(len(steps)) < 1 / 5000, counters, 0.0))
    offsets = count * np.arange(series + 1)
    labels = [(("__name__", "made_total"), ("series", str(n))) for n in range(series)]
    gauges = rng.normal(size=series * count)
    return Samples(labels, offsets, times, counters), Samples(labels, offsets, times, gauges)


def best(work: Callable[[], object]) -> float:
    """Return CPU seconds without the first turn, which may compile."""
    work()
    taken = []
    for _ in range(TURNS):
        began = time.thread_time()
        work()
        taken.append(time.thread_time() - began)
    return min(taken)


def by_function(name: str, given: Windows, steps: Steps) -> float:
    arguments: tuple[Value, ...] = (given,)
    if name == "quantile_over_time":
        arguments = (Scalar(np.full(len(steps), 0.9)), given)
    called = Invocation(Call(name, (given.expression,)), arguments, steps, _Evaluation())  # type: ignore[arg-type]
    return best(lambda: FUNCTIONS[name].evaluate(called))


def by_window(plain: Callable[[Window], float], given: Windows) -> float:
    """Estimate the time of all series from one in PART."""
    rows = range(0, len(given.samples), PART)
    began = time.thread_time()
    for row in rows:
        for step, end in enumerate(given.ends.tolist()):
            inside = slice(given.first[row, step], given.last[row, step])
            if inside.stop - inside.start > 1:
                plain(Window(given.samples.times[inside], given.samples.values[inside], end - RANGE, end))
    return (time.thread_time() - began) * len(given.samples) / len(rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--series", type=int, default=3500)
    parser.add_argument("--steps", type=int, default=720)
    parser.add_argument("--samples", type=int, default=2880, help="of each series")
    given = parser.parse_args()
    counters, gauges = made(given.series, given.samples)
    span = EVERY * given.samples
    steps = Steps(OPENING + span // given.steps, OPENING + span, span // given.steps)
    print(f"{given.series} series x {len(steps)} steps of {steps.step} ms, {len(counters.times)} samples")
    taken = best(lambda: window_bounds(counters.offsets, counters.times, steps.times, RANGE))
    print(f"windows of {RANGE} ms: {taken * 1e3:.1f} ms")
    print(f"{'':20} {'kernel':>10} {'plain':>12} {'ratio':>8}")
    for name, plain in PLAIN.items():
        samples = counters if name in ("rate", "irate", "resets") else gauges
        range_vector = Windows(samples, steps.times, RANGE, RANGE, Range(Selector(()), RANGE))
        kernel, slow = by_function(name, range_vector, steps), by_window(plain, range_vector)
        print(f"{name:20} {kernel * 1e3:7.1f} ms {slow * 1e3:9.0f} ms {slow / kernel:7.0f}x")


if __name__ == "__main__":
    main()
