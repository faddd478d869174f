"""Prometheus' JSON: doubles to the last sign, groups of time as one, histograms, range vectors."""

from __future__ import annotations

import json
import struct
from decimal import Decimal

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from lakerunner.api.formats import series_json as prometheus_json
from lakerunner.api.formats.series_json import group_events, result_json, stamp
from lakerunner.api.formats.series_text import PackedTexts, rows_of_vector, write_rows
from lakerunner.model.labels import labels_of
from lakerunner.query.series_answer import StepGroup
from lakerunner.series.histograms.histogram import BucketCounts, Histogram
from lakerunner.series.values import Samples, Scalar, Steps, String, Vector

ALL = 1 << 62
A, B, C = (labels_of({"__name__": "m", "x": x}) for x in "abc")
HISTOGRAM = Histogram(0, 5.0, 18.4, positive=BucketCounts(np.array([0, 1], np.int32), np.array([3.0, 2.0])))


def reference(value: float) -> str:
    """What Go's strconv makes of it, and what Prometheus asks it for, by decimals of any size."""
    if value != value:
        return "NaN"
    if value in (float("inf"), float("-inf")):
        return "+Inf" if value > 0 else "-Inf"
    sign, digits, exponent = Decimal(repr(value)).normalize().as_tuple()
    assert isinstance(exponent, int)
    text, minus = "".join(map(str, digits)), "-" if sign else ""
    if value != 0 and not 1e-6 <= abs(value) < 1e21:
        power = exponent + len(text) - 1
        return f"{minus}{text[0]}{'.' + text[1:] if text[1:] else ''}e{'-' if power < 0 else '+'}{abs(power):02}"
    plain = format(Decimal(repr(value)), "f")
    return plain.rstrip("0").rstrip(".") if "." in plain else plain


def written(values: list[float]) -> list[str]:
    vector = Vector([()], np.array([values]), np.ones((1, len(values)), bool))
    stamps = PackedTexts.pack([b""] * len(values))
    (text,) = write_rows(rows_of_vector(vector), stamps, PackedTexts.pack([b""]), b"", b" ", quotes=False)
    return text.decode().split()


def parsed(groups: list[StepGroup], *, instant: bool = False, limit: int = ALL) -> tuple[str, object, bool]:
    kind, chunks, cut = result_json(groups, instant, limit)
    return kind, json.loads(b"".join(chunks)), cut


DOUBLES = st.integers(0, 2**64 - 1).map(lambda bits: struct.unpack("<d", struct.pack("<Q", bits))[0])


@settings(max_examples=60, deadline=None)
@given(st.lists(DOUBLES | st.floats() | st.integers(-(10**22), 10**22).map(float), min_size=1, max_size=50))
@example([0.0, -0.0, 5e-324, 2.2250738585072014e-308, 1.7976931348623157e308, float("nan"), float("-inf")])
@example([1e21, 9.999999999999999e20, 1e-6, 9.999999999999999e-7, 1e22, 1e23, 123456789012345680000.0])
def test_doubles_are_written_as_prometheus_writes_them(values: list[float]) -> None:
    assert written(values) == [reference(value) for value in values]


def test_every_power_of_two_and_ten() -> None:
    values = [sign * 2.0**n for n in range(-1074, 1024) for sign in (1, -1)] + [
        float(f"1e{n}") for n in range(-323, 309)
    ]
    assert written(values) == [reference(value) for value in values]


def test_many_doubles_of_any_bits() -> None:
    values = np.random.default_rng(6).integers(0, 2**64, 20_000, np.uint64).view(np.float64).tolist()
    assert written(values) == [reference(value) for value in values]


@pytest.mark.parametrize(
    ("ms", "text"),
    [(0, "0"), (1435781430781, "1435781430.781"), (1500, "1.500"), (7, "0.007"), (-1, "-0.001"), (-62000, "-62")],
)
def test_times_are_seconds_with_ms_where_there_are_some(ms: int, text: str) -> None:
    assert stamp(ms) == text.encode()


def test_a_range_is_a_matrix_without_what_is_not_there() -> None:
    values = np.array([[1.0, 2.5, np.nan], [7.0, 8.0, 9.0], [0.0, 0.0, 0.0]])
    present = np.array([[True, False, True], [True, True, True], [False, False, False]])
    group = StepGroup(Steps(1000, 3500, 1250), Vector([A, B, C], values, present))
    kind, result, cut = parsed([group])
    assert (kind, cut) == ("matrix", False)
    assert result == [
        {"metric": {"__name__": "m", "x": "a"}, "values": [[1, "1"], [3.5, "NaN"]]},
        {"metric": {"__name__": "m", "x": "b"}, "values": [[1, "7"], [2.25, "8"], [3.5, "9"]]},
    ]


def test_groups_of_time_become_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """Series come and go; a chunk for each of them."""
    monkeypatch.setattr(prometheus_json, "CHUNK_BYTES", 1)
    first = StepGroup(Steps(0, 1000, 1000), Vector([A, C], np.array([[1.0, 2], [5, 6]]), np.ones((2, 2), bool)))
    histograms = np.array([[HISTOGRAM], [None]], object)
    second = StepGroup(
        Steps(2000, 2000, 1000), Vector([B, C], np.array([[0.0], [7]]), np.ones((2, 1), bool), histograms)
    )
    third = StepGroup(Steps(3000, 3000, 1000), Vector([], np.zeros((0, 1)), np.zeros((0, 1), bool)))
    _, result, _ = parsed([first, second, third])
    native = {"count": "5", "sum": "18.4", "buckets": [[0, "0.5", "1", "3"], [0, "1", "2", "2"]]}
    assert result == [
        {"metric": dict(A), "values": [[0, "1"], [1, "2"]]},
        {"metric": dict(B), "histograms": [[2, native]]},
        {"metric": dict(C), "values": [[0, "5"], [1, "6"], [2, "7"]]},
    ]
    assert parsed([first, second, third], limit=2)[1:] == (result[:2], True)


def test_a_scalar_over_a_range_is_one_series_without_labels() -> None:
    group = StepGroup(Steps(0, 1000, 1000), Scalar(np.array([1.0, np.inf])))
    assert parsed([group]) == ("matrix", [{"metric": {}, "values": [[0, "1"], [1, "+Inf"]]}], False)


def test_nothing_is_an_empty_list() -> None:
    empty = StepGroup(Steps(0, 1000, 1000), Vector([], np.zeros((0, 2)), np.zeros((0, 2), bool)))
    assert parsed([]) == parsed([empty]) == ("matrix", [], False)
    assert parsed([StepGroup(Steps(0, 0), Vector([], np.zeros((0, 1)), np.zeros((0, 1), bool)))], instant=True)[1] == []


def test_an_instant_keeps_its_order() -> None:
    values, present = np.array([[2.0], [1.0], [3.0]]), np.ones((3, 1), bool)
    histograms = np.array([[None], [None], [HISTOGRAM]], object)
    group = StepGroup(Steps(1500, 1500), Vector([B, A, C], values, present, histograms))
    kind, result, _ = parsed([group], instant=True)
    assert kind == "vector"
    assert [row.get("value") for row in result] == [[1.5, "2"], [1.5, "1"], None]  # type: ignore[attr-defined]
    assert result[2]["histogram"][1]["count"] == "5"  # type: ignore[index]
    assert parsed([group], instant=True, limit=1)[1:] == (result[:1], True)  # type: ignore[index]


def test_scalars_and_strings_of_an_instant() -> None:
    assert parsed([StepGroup(Steps(1500, 1500), Scalar(np.array([0.1])))], instant=True) == (
        "scalar",
        [1.5, "0.1"],
        False,
    )
    assert parsed([StepGroup(Steps(0, 0), String('a"b'))], instant=True) == ("string", [0, 'a"b'], False)


def test_a_range_vector_has_its_own_times(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prometheus_json, "CHUNK_BYTES", 1)
    histograms = np.array([None, None, HISTOGRAM], object)
    samples = Samples([A, B], np.array([0, 2, 3]), np.array([1, 1002, 2003]), np.array([1.0, 2, 0]), histograms)
    kind, result, _ = parsed([StepGroup(Steps(3000, 3000), samples)], instant=True)
    assert kind == "matrix"
    assert result[0] == {"metric": dict(A), "values": [[0.001, "1"], [1.002, "2"]]}  # type: ignore[index]
    assert result[1]["histograms"][0][0] == 2.003  # type: ignore[index]


def test_labels_are_escaped() -> None:
    labels = labels_of({"a": 'x"\\\n\x01', "größe": "♥"})
    group = StepGroup(Steps(0, 0), Vector([labels], np.ones((1, 1)), np.ones((1, 1), bool)))
    assert parsed([group], instant=True)[1] == [{"metric": dict(labels), "value": [0, "1"]}]


def test_events_have_a_point_each() -> None:
    values, histograms = np.array([[1.5, np.nan, 0.0]]), np.array([[None, None, HISTOGRAM]], object)
    group = StepGroup(Steps(1, 2001, 1000), Vector([A], values, np.ones((1, 3), bool), histograms))
    events = [json.loads(line[6:]) for chunk in group_events(group) for line in chunk.decode().split("\n\n") if line]
    assert [event["data"]["timestamp"] for event in events] == [1, 1001, 2001]
    assert [event["data"].get("value") for event in events] == [1.5, "NaN", None]
    assert events[2]["data"]["histogram"]["sum"] == "18.4"
    assert events[0] == {
        "type": "result",
        "data": {"label": 'm{x="a"}', "tags": dict(A), "timestamp": 1, "value": 1.5},
    }
    (text,) = group_events(StepGroup(Steps(5, 5), String("x")))
    assert json.loads(text[6:])["data"] == {"text": "x", "timestamp": 5}
