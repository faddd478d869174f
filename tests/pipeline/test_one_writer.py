"""Ingest of some rows and a merge of segments with the same rows record and store the same about them."""

from __future__ import annotations

import io
import random
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lakerunner.model.segment import Segment
from lakerunner.model.signal import LOGS, METRICS, TRACES, SignalSpec
from lakerunner.model.text_index import HEADER, TextIndex
from lakerunner.objects.open import StoreAddress, shared_store
from lakerunner.pipeline import row_segments
from lakerunner.pipeline.compact import CompactLimits, CompactWork, compact_work
from lakerunner.pipeline.segment.writer import SegmentWriter
from suites.ingested import ORGANIZATION, ingested, random_logs, random_metrics, random_spans

LIMITS = CompactLimits(memory=64 << 20, max_bytes=1 << 30)
LINES = [f"order {number} of {number * 7919:032x} is gone" for number in range(30)]
CASES: dict[str, tuple[SignalSpec, Callable[[random.Random], bytes]]] = {
    # Lines that differ: of records that came twice a merge keeps one.
    "logs": (LOGS, lambda chance: random_logs(chance, [f"{line} {chance.random()}" for line in LINES])),
    "metrics": (METRICS, random_metrics),
    "traces": (TRACES, random_spans),
}


def facts(segment: Segment) -> dict[str, Any]:
    """What the index records, but for what depends on how rows are encoded, and on the work that made the segment."""
    statistics = {name: value for name, value in segment.statistics.items() if name != "side_bytes"}
    # A merge keeps a column that a part has, however rare its values are in the whole.
    keys = {column.name for column in segment.columns if not column.type}
    return {
        "time": segment.time,
        "rows": segment.rows,
        "sort_version": segment.sort_version,
        "columns": keys,
        "statistics": statistics,
        "fingerprints": segment.fingerprints,
        "sides": {*segment.statistics["side_bytes"]},
    }


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("signal", CASES)
def test_a_merge_records_what_ingest_records_of_the_same_rows(signal: str, seed: int, tmp_path: Path) -> None:
    spec, request = CASES[signal]
    chance = random.Random(seed)
    case = ingested(spec, *(request(chance) for _ in range(4)))
    address = StoreAddress(tmp_path.as_uri())
    store = shared_store(address)
    for path, data in case.files.items():
        store.put(path, data)
    parts = tuple(replace(part, ingested=place) for place, part in enumerate(case.parts, 1))
    outcome = compact_work(CompactWork(ORGANIZATION, "c", spec.name, 0, 1, parts), address, LIMITS)
    assert outcome.error == ""
    (merged,) = outcome.segments
    assert facts(merged) == facts(case.whole)
    for name, size in merged.statistics["side_bytes"].items():
        side = bytes(store.get(merged.side_path(name), max_bytes=1 << 20))
        assert len(side) == size
        assert content(side) == content(case.side(name))


def content(side: bytes) -> pa.Table | bytes:
    """The rows of a side file that is Parquet, or its bytes."""
    return pq.read_table(io.BytesIO(side)) if side[:4] == b"PAR1" else side


class Counting:
    """A further consumer of the rows of a segment."""

    def __init__(self) -> None:
        self.groups: list[int] = []

    def add(self, batch: pa.RecordBatch) -> None:
        self.groups.append(batch.num_rows)


def test_a_further_consumer_is_given_every_row_group_and_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lakerunner.pipeline.steps.order.ROW_GROUP_BYTES", 500)
    request = random_logs(random.Random(3), LINES)
    before = ingested(LOGS, request)
    made: list[Counting] = []

    class Watched(SegmentWriter):
        def __init__(self, *given: Any, **options: Any) -> None:
            made.append(Counting())
            super().__init__(*given, **options | {"consumers": [made[-1]]})

    monkeypatch.setattr(row_segments, "SegmentWriter", Watched)
    after = ingested(LOGS, request)
    assert same(after.files) == same(before.files)
    assert made[-1].groups == [batch.num_rows for batch in after.row_groups()]
    assert len(made[-1].groups) > 2
    _, _, _, groups, *_ = HEADER.unpack_from(after.side("text.bin"))
    assert groups == TextIndex(after.side("text.bin")).groups == len(made[-1].groups)


def same(files: Mapping[str, bytes]) -> dict[str, bytes]:
    return dict(sorted(files.items()))
