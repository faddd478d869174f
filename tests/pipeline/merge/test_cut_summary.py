"""A merge that gives several segments tells the index of each what its own rows have."""

from __future__ import annotations

import io
import random
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from lakerunner.model.labels.row_view import known_keys
from lakerunner.model.segment import VALUES, field_fingerprints
from lakerunner.model.signal import LOGS, METRICS, SCOPES, TRACES, SignalSpec
from lakerunner.objects.open import StoreAddress, shared_store
from lakerunner.pipeline.compact import CompactLimits, CompactWork, compact_work
from suites.ingested import ORGANIZATION, ingested, random_logs, random_metrics, random_spans

CASES: dict[str, tuple[SignalSpec, Callable[[random.Random], bytes]]] = {
    "logs": (LOGS, lambda chance: random_logs(chance, ["one", "two"] * 20)),
    "metrics": (METRICS, random_metrics),
    "traces": (TRACES, random_spans),
}


@pytest.mark.parametrize("signal", CASES)
def test_each_is_told_of_by_its_own_rows(signal: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spec, request = CASES[signal]
    monkeypatch.setattr("lakerunner.pipeline.compact.spec_of", lambda *_: replace(spec, row_group_rows=8))
    chance = random.Random(3)
    case = ingested(spec, *(request(chance) for _ in range(4)))
    address = StoreAddress(tmp_path.as_uri())
    store = shared_store(address)
    for path, data in case.files.items():
        store.put(path, data)
    parts = tuple(replace(part, ingested=place) for place, part in enumerate(case.parts, 1))
    work = CompactWork(ORGANIZATION, "c", signal, 0, 1, parts)
    made = compact_work(work, address, CompactLimits(memory=64 << 20, max_bytes=1)).segments
    assert len(made) > 3
    for one in made:
        shown = [*VALUES[signal], *(scope.map_column for scope in SCOPES)]
        shown += [column.name for column in one.columns if column.type]
        rows = pq.read_table(io.BytesIO(store.get(one.path, max_bytes=1 << 20))).select(shown).to_pylist()
        wanted: set[int] = set()
        for name, word in VALUES[signal].items():
            values = {row[name] for row in rows}
            assert one.statistics[f"{word}s"] == sorted(values)
            assert one.statistics[f"{word}_count"] == len(values)
            wanted.update(field_fingerprints(name, values))
        if signal == "metrics":
            table = pq.read_table(io.BytesIO(store.get(one.side_path("series.parquet"), max_bytes=1 << 20)))
            for name in ("prometheus_name", "prometheus_escaped"):
                wanted.update(field_fingerprints("metric_name", filter(None, table.column(name).to_pylist())))
        for scope in SCOPES:
            keys = {key for row in rows for key, _ in row[scope.map_column]}
            named = {column.name for column in one.columns if column.type and column.name.startswith(scope.prefix)}
            keys |= {name.removeprefix(scope.prefix) for row in rows for name in named if row[name] is not None}
            wanted.update(number for key in keys for number in field_fingerprints(scope.prefix + key))
            if scope.map_column == "attributes":
                assert one.statistics["labels"] == sorted(keys)
                assert one.statistics["label_count"] == len(keys)
        assert one.fingerprints == tuple(sorted(wanted))
        known = known_keys(one)
        assert known is not None
        assert known <= (known_keys(case.whole) or set())
    assert len({one.fingerprints for one in made}) > 1
