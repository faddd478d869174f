"""What the index is told of a merged segment: what ingest would tell it of the same rows."""

from __future__ import annotations

import io
import random
from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lakerunner.model.segment import INCOMPLETE, Column, digest64
from lakerunner.model.signal import LOGS, METRICS, OVERFLOW, SCOPES, TIME, TRACES, SignalSpec
from lakerunner.pipeline.segment.writer import MOST_HELD, Summarizer
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
    summary = Summarizer(spec, case.whole.columns)
    for group in case.row_groups():
        for start in range(0, group.num_rows, 7):
            summary.add(group.slice(start, 7))
    further = []
    if spec is METRICS:
        table = pq.read_table(io.BytesIO(case.side("series.parquet")))
        names = [table.column(name).drop_null().to_pylist() for name in ("prometheus_name", "prometheus_escaped")]
        further = [{"metric_name": [*names[0], *names[1]]}]
    found = summary.finish(further)
    assert found["fingerprints"] == case.whole.fingerprints
    assert {**found["statistics"], "side_bytes": case.whole.statistics["side_bytes"]} == case.whole.statistics
    assert (found["time"], found["rows"]) == (case.whole.time, case.whole.rows)


def told(*services: Sequence[str], keys: Sequence[str] = ()) -> tuple[dict[str, Any], tuple[int, ...]]:
    """Of logs of these services, those of a row group together, of which every row has these keys."""
    summary = Summarizer(LOGS, [Column("service_name", ""), Column("attributes.empty", "string")])
    for some in services:
        columns: dict[str, pa.Array] = {"service_name": pa.array(some).dictionary_encode()}
        for scope in SCOPES:
            pairs = [(key, "1") for key in keys] if scope.prefix == "attributes." else []
            columns[scope.map_column] = pa.array([pairs] * len(some), OVERFLOW)
        columns["timestamp"] = pa.array([0] * len(some), TIME)
        columns["attributes.empty"] = pa.nulls(len(some), pa.string())
        summary.add(pa.RecordBatch.from_pydict(columns))
    found = summary.finish()
    return found["statistics"], found["fingerprints"]


def test_the_first_hundred_are_listed_and_all_are_counted() -> None:
    statistics, _ = told(*([f"{part}{n:02}" for n in range(90)] for part in "bab"), keys=["k"])
    assert statistics["services"] == [f"a{n:02}" for n in range(90)] + [f"b{n:02}" for n in range(10)]
    assert statistics["service_count"] == 180


def test_a_column_without_a_value_is_a_key_and_no_label() -> None:
    statistics, fingerprints = told(["a"], keys=["k", "l"])
    assert statistics == {
        "services": ["a"],
        "service_count": 1,
        "labels": ["k", "l"],
        "label_count": 2,
        "key_count": 3,
    }
    assert digest64("attributes.k") in fingerprints
    assert digest64("attributes.empty") not in fingerprints


def test_a_name_is_cut_and_counted() -> None:
    statistics, _ = told(["x" * 256 + "1", "x" * 256 + "2"])
    assert statistics["services"] == ["x" * 256] * 2
    assert statistics["service_count"] == 2


def test_fingerprints_that_are_too_many_prune_nothing() -> None:
    most = [f"{number:04}" for number in range(2000)]
    statistics, fingerprints = told(most[:1999])  # and that there is a service at all
    assert len(fingerprints) == 2000
    statistics, fingerprints = told(most)
    assert fingerprints == (INCOMPLETE,)
    assert statistics["service_count"] == 2000


def test_of_more_than_can_be_held_the_first_are_listed_and_none_is_counted() -> None:
    many = [f"{number:06}" for number in range(2 * MOST_HELD)]
    statistics, fingerprints = told(many[100:-5], many[-5:], many[:100])
    assert statistics["services"] == many[:100]
    assert fingerprints == (INCOMPLETE,)
    assert "service_count" not in statistics
    assert statistics["key_count"] == 1
    statistics, fingerprints = told(["a"], keys=many)
    assert statistics["labels"] == many[:100]
    assert fingerprints == (INCOMPLETE,)
    assert not {"label_count", "key_count"} & statistics.keys()
