"""A whole compaction puts beside its segment, and into the index, what ingest would have of the same rows."""

from __future__ import annotations

import io
import random
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from lakerunner.model.signal import LOGS, METRICS, TRACES, SignalSpec
from lakerunner.objects.open import StoreAddress, shared_store
from lakerunner.pipeline.compact import CompactLimits, CompactWork, compact_work
from suites.ingested import ORGANIZATION, ingested, random_logs, random_metrics, random_spans

LIMITS = CompactLimits(memory=64 << 20, max_bytes=1 << 30)
LINES = [f"order {number} of {number * 7919:032x} is gone" for number in range(30)]
CASES: dict[str, tuple[SignalSpec, Callable[[random.Random], bytes]]] = {
    "text.bin": (LOGS, lambda chance: random_logs(chance, chance.sample(LINES, 20))),
    "series.parquet": (METRICS, random_metrics),
    "traces.parquet": (TRACES, random_spans),
}


@pytest.mark.parametrize("name", CASES)
def test_it_is_what_ingest_would_have_made(name: str, tmp_path: Path) -> None:
    spec, request = CASES[name]
    chance = random.Random(6)
    case = ingested(spec, *(request(chance) for _ in range(4)))
    address = StoreAddress(tmp_path.as_uri())
    store = shared_store(address)
    for path, data in case.files.items():
        store.put(path, data)
    parts = tuple(replace(part, ingested=place, rolled=True) for place, part in enumerate(case.parts, 1))
    outcome = compact_work(CompactWork(ORGANIZATION, "c", spec.name, 0, 1, parts), address, LIMITS)
    assert outcome.error == ""
    (made,) = outcome.segments
    assert made.rows == case.whole.rows
    side = bytes(store.get(made.side_path(name), max_bytes=1 << 20))
    assert made.statistics["side_bytes"][name] == len(side)
    if name == "traces.parquet":
        assert pq.read_table(io.BytesIO(side)).equals(pq.read_table(io.BytesIO(case.side(name))))
    else:
        assert side == case.side(name)
    assert made.fingerprints == case.whole.fingerprints
    assert {**case.whole.statistics, **made.statistics, "side_bytes": 0} == {**case.whole.statistics, "side_bytes": 0}
