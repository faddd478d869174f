"""What the index is told of a merged segment: what ingest would tell it of the same rows, or less, never else."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from lakerunner.api.native_tags import known_keys
from lakerunner.model.fingerprint import INCOMPLETE
from lakerunner.model.segment import Segment
from lakerunner.model.signal import LOGS, METRICS, TRACES, SignalSpec
from lakerunner.pipeline.merge.summary import merged_summary
from suites.ingested import ingested, random_logs, random_metrics, random_spans

CASES: dict[str, tuple[SignalSpec, Callable[[random.Random], bytes]]] = {
    "logs": (LOGS, lambda chance: random_logs(chance, ["one", "two", "three"] * 5)),
    "metrics": (METRICS, random_metrics),
    "traces": (TRACES, random_spans),
}


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("signal", CASES)
def test_it_is_what_ingest_tells(signal: str, seed: int) -> None:
    spec, request = CASES[signal]
    chance = random.Random(seed)
    case = ingested(spec, *(request(chance) for _ in range(3)))
    statistics, fingerprints = merged_summary(spec, case.parts, case.whole.columns)
    assert fingerprints == case.whole.fingerprints
    wanted = {name: value for name, value in case.whole.statistics.items() if name != "side_bytes"}
    # A key of few rows that has no column in a part may leave the count of keys unknown.
    assert {**wanted, **statistics} == wanted
    assert set(wanted) - set(statistics) <= {"key_count"}
    merged = replace(case.whole, statistics=statistics)
    assert known_keys(merged) in (known_keys(case.whole), None)
    assert ("key_count" in statistics) == all(known_keys(part) is not None for part in case.parts)


def segment(**statistics: Any) -> Segment:
    (part,) = ingested(LOGS, random_logs(random.Random(1), ["x"])).parts
    return replace(part, statistics=statistics, columns=())


def listed(*names: str, count: int | None = None) -> dict[str, Any]:
    return {"services": [*names][:100], "service_count": len(names) if count is None else count}


def test_a_list_that_is_cut_gives_the_first_of_all_and_no_count() -> None:
    many = [f"s{number:03}" for number in range(150)]
    parts = [segment(**listed(*many[::2])), segment(**listed(*many[25:], count=125)), segment(**listed("a", "z"))]
    statistics, _ = merged_summary(LOGS, parts, ())
    assert statistics["services"] == sorted({"a", "z", *many[::2], *many[25:]})[:100]
    assert "service_count" not in statistics
    statistics, _ = merged_summary(LOGS, parts[::2], ())
    assert statistics["services"] == ["a", *many[::2], "z"]
    assert statistics["service_count"] == 77


def test_more_than_a_hundred_of_complete_lists_are_counted() -> None:
    parts = [segment(**listed(*(f"{part}{n:02}" for n in range(90)))) for part in "ba"]
    statistics, _ = merged_summary(LOGS, parts, ())
    assert statistics["services"] == [f"a{n:02}" for n in range(90)] + [f"b{n:02}" for n in range(10)]
    assert statistics["service_count"] == 180


def test_a_name_that_may_be_cut_is_not_counted() -> None:
    parts = [segment(**listed("x" * 256)), segment(**listed("x" * 256))]
    statistics, _ = merged_summary(LOGS, parts, ())
    assert statistics == {"services": ["x" * 256]}


def test_what_an_older_release_does_not_tell_is_not_told() -> None:
    statistics, _ = merged_summary(LOGS, [segment(**listed("a"), labels=["k"], label_count=1), segment()], ())
    assert statistics == {}


def test_fingerprints_that_are_incomplete_too_many_or_absent_prune_nothing() -> None:
    part = segment()
    one, other = replace(part, fingerprints=(1, 2)), replace(part, fingerprints=(2, 3))
    assert merged_summary(LOGS, [one, other], ())[1] == (1, 2, 3)
    for odd in ((), (INCOMPLETE,), tuple(range(10, 2009))):
        assert merged_summary(LOGS, [one, replace(part, fingerprints=odd), other], ())[1] == (INCOMPLETE,)
    most = tuple(range(1, 2001))
    assert merged_summary(LOGS, [one, replace(part, fingerprints=most), other], ())[1] == most
