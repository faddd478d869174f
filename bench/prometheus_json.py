"""The answer of a range query as Prometheus' JSON: ours, from arrays, beside orjson, from Python values.

    rates      3,500 series of 241 steps, every value another: 17 digits
    counts     the same, whole numbers
    gauges     the same, values that stay for a while

Both write the same bytes, but for how orjson writes doubles: there they are texts made by `repr`, as they would have to
be. Ways take turns, the best turn of each counts.

    python bench/prometheus_json.py [--series 3500] [--steps 241] [--repeat 5]
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import orjson

from lakerunner.api.formats.series_json import result_json
from lakerunner.model.labels import Labels, labels_of
from lakerunner.query.series_answer import StepGroup
from lakerunner.series.values import Steps, Vector

BEGAN_MS = 1_435_781_430_781


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--series", type=int, default=3500)
    parser.add_argument("--steps", type=int, default=241)
    parser.add_argument("--repeat", type=int, default=5)
    given = parser.parse_args()
    shape = given.series, given.steps
    chance = np.random.default_rng(1)
    steps = Steps(BEGAN_MS, BEGAN_MS + 15_000 * (given.steps - 1), 15_000)
    labels = [labels_of({"__name__": "http_requests_total", "instance": f"host-{n:05}"}) for n in range(given.series)]
    whole = chance.integers(0, 1_000_000, shape).astype(float)
    kinds = {"rates": chance.random(shape) * 1e3, "counts": whole, "gauges": whole // 100_000 + 0.25}
    print(f"{shape[0] * shape[1]:,} points")
    for name, values in kinds.items():
        group = StepGroup(steps, Vector(labels, values, np.ones(shape, bool)))
        ours, theirs = best(
            given.repeat, lambda group=group: by_us(group), lambda group=group: by_orjson(group, labels)
        )
        print(
            f"  {name:8} ours {ours * 1e3:7.1f} ms   orjson {theirs * 1e3:7.1f} ms   {ours / theirs:.2f}x of its time"
        )


def by_us(group: StepGroup) -> bytes:
    _, chunks, _ = result_json([group], instant=False, limit=1 << 31)
    return b"".join(chunks)


def by_orjson(group: StepGroup, labels: list[Labels]) -> bytes:
    assert isinstance(group.value, Vector)
    times = (group.steps.times / 1000).tolist()
    return orjson.dumps(
        [
            {"metric": dict(one), "values": list(zip(times, map(repr, row), strict=True))}
            for one, row in zip(labels, group.value.values.tolist(), strict=True)
        ]
    )


def best(repeat: int, *ways: Callable[[], Any]) -> list[float]:
    found = [float("inf")] * len(ways)
    for _ in range(repeat):
        for place, way in enumerate(ways):
            began = time.perf_counter()
            way()
            found[place] = min(found[place], time.perf_counter() - began)
    return found


if __name__ == "__main__":
    main()
