"""Ask an HTTP API of Prometheus' form, ours or Prometheus' own.

Histograms are JSON there: count, sum and the non-empty buckets with their bounds. Schema and reset hint are not visible
and not compared.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import httpx

from conformance.answer import Answer, almost_equal
from conformance.notation import Point
from conformance.script import State
from lakerunner.model.labels import Labels, labels_of
from lakerunner.series.histograms.histogram import BucketCounts, Histogram
from lakerunner.series.values import Steps


@dataclass(frozen=True)
class Address:
    """`url` is the part before `/api/v1/query`."""

    url: str
    headers: Mapping[str, str]


@dataclass(frozen=True)
class ShownHistogram:
    count: float
    sum: float
    buckets: tuple[tuple[float, float, float], ...]  # low, high, count; by low


class HttpSubject:
    def __init__(self, client: httpx.Client, address_of: Callable[[State], Address]) -> None:
        self._client, self._address_of = client, address_of

    def ask(self, state: State, query: str, steps: Steps, *, instant: bool) -> Answer:
        address = self._address_of(state)
        fields = {"time": _seconds(steps.start)} if instant else _range(steps)
        path = "query" if instant else "query_range"
        response = self._client.post(
            f"{address.url}/api/v1/{path}", data={"query": query, **fields}, headers=dict(address.headers)
        )
        if response.status_code >= 500 or "json" not in response.headers.get("content-type", ""):
            raise ConnectionError(f"{response.status_code} {response.text[:500]}")
        body = response.json()
        if body["status"] != "success":
            return Answer(error=body["error"])
        return _answer(body["data"], body.get("warnings", ()), body.get("infos", ()))


def same_as_shown(expected: Point, got: object) -> bool:
    one = expected.value
    if not isinstance(one, Histogram) or not isinstance(got, ShownHistogram):
        return False
    shown = shown_of(one)
    return (
        almost_equal(shown.count, got.count)
        and almost_equal(shown.sum, got.sum)
        and len(shown.buckets) == len(got.buckets)
        and all(
            almost_equal(a, b)
            for left, right in zip(shown.buckets, got.buckets, strict=True)
            for a, b in zip(left, right, strict=True)
        )
    )


def shown_of(one: Histogram) -> ShownHistogram:
    positive = [(*_bounds(one, index), count) for index, count in _counts(one.positive)]
    negative = [(-high, -low, count) for index, count in _counts(one.negative) for low, high in [_bounds(one, index)]]
    zero = [(-one.zero_threshold, one.zero_threshold, one.zero_count)] if one.zero_count else []
    return ShownHistogram(one.count, one.sum, tuple(sorted([*negative, *zero, *positive])))


def _counts(buckets: BucketCounts) -> list[tuple[int, float]]:
    both = zip(buckets.indexes.tolist(), buckets.counts.tolist(), strict=True)
    return [(index, count) for index, count in both if count != 0]


def _bounds(one: Histogram, index: int) -> tuple[float, float]:
    if one.is_custom:
        bounds = (-math.inf, *one.custom_values, math.inf)
        return bounds[index], bounds[index + 1]
    return _power(index - 1, one.schema), _power(index, one.schema)


def _power(index: int, schema: int) -> float:
    exponent = index / 2**schema if schema >= 0 else index * 2**-schema
    if exponent >= 1024:
        return 1.7976931348623157e308 if exponent == 1024 else math.inf
    return 2.0**exponent


def _seconds(ms: int) -> str:
    return f"{ms / 1000:.3f}"


def _range(steps: Steps) -> dict[str, str]:
    return {"start": _seconds(steps.start), "end": _seconds(steps.end), "step": _seconds(steps.step)}


def _answer(data: Mapping[str, Any], warnings: list[str], infos: list[str]) -> Answer:
    kind, result = data["resultType"], data["result"]
    if kind == "scalar":
        return Answer("scalar", scalar=float(result[1]), warnings=warnings, infos=infos)
    if kind == "string":
        return Answer("string", string=result[1], warnings=warnings, infos=infos)
    return Answer(kind, [_series(one) for one in result], warnings=warnings, infos=infos)


def _series(one: Mapping[str, Any]) -> tuple[Labels, list[tuple[int, float | ShownHistogram]]]:
    floats = [one["value"]] if "value" in one else one.get("values", [])
    shown = [one["histogram"]] if "histogram" in one else one.get("histograms", [])
    points: list[tuple[int, float | ShownHistogram]] = [(_ms(time), float(value)) for time, value in floats]
    points += [(_ms(time), _shown(value)) for time, value in shown]
    return labels_of(one["metric"]), sorted(points, key=lambda point: point[0])


def _shown(value: Mapping[str, Any]) -> ShownHistogram:
    buckets = [(float(low), float(high), float(count)) for _, low, high, count in value.get("buckets", ())]
    return ShownHistogram(float(value["count"]), float(value["sum"]), tuple(sorted(buckets)))


def _ms(seconds: float) -> int:
    return round(seconds * 1000)
