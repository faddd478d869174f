"""Random segments of every signal, merged: every row with every attribute, in order, those that came twice once."""

from __future__ import annotations

import random
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakerunner.model.signal import LOGS, METRICS, TRACES, SignalSpec
from pipeline import test_metrics_random, test_segments_random, test_traces_random
from pipeline.merge_oracle import MEMORY, a_store, expected, ingested, merge, read
from pipeline.otlp_random import thorough

REQUESTS = {
    "logs": test_segments_random.requests(),
    "metrics": test_metrics_random.requests(),
    "traces": test_traces_random.requests(),
}


def check(spec: SignalSpec, contents: list[bytes], memory: int = MEMORY) -> int:
    """How many rows came twice."""
    store = a_store()
    segments = ingested(store, spec, contents)
    if not segments:
        return 0
    with TemporaryDirectory() as directory:
        found = merge(store, spec, segments, Path(directory), memory)
        assert list(Path(directory).glob("*.merged")) == []
    assert found is not None
    rows = read(store, found)
    assert rows == expected(store, spec, segments)
    assert found.time.start_ns == min(row["timestamp"] for row in rows)
    assert found.time.end_ns == max(row["timestamp"] for row in rows) + 1
    return sum(segment.rows for segment in segments) - len(rows)


@pytest.mark.slow
@pytest.mark.parametrize("spec", [LOGS, METRICS, TRACES], ids=lambda spec: spec.name)
def test_a_merge_gives_every_row_once_in_order(spec: SignalSpec) -> None:
    came_twice = 0

    @thorough(60)
    @given(st.lists(REQUESTS[spec.name], min_size=1, max_size=4), st.randoms(use_true_random=False))
    def merges(requests: list[Any], chance: random.Random) -> None:
        nonlocal came_twice
        contents = [request.SerializeToString() for request in requests]
        contents += [data for data in contents if chance.random() < 0.4]
        chance.shuffle(contents)
        came_twice += check(spec, contents)

    merges()
    assert came_twice > 0
