"""Rows of one sort key that are more than memory may hold: the merge gives what it gives with room for all."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from lakerunner.model.signal import LOGS, METRICS, TRACES, SignalSpec
from lakerunner.pipeline.merge.duplicates import find_kept
from lakerunner.pipeline.merge.inputs import open_segments
from lakerunner.pipeline.merge.merged_rows import MergedRows
from lakerunner.pipeline.signals import row_of
from pipeline.merge_oracle import a_store, expected, ingested, merge, read

START = 1_760_000_400_000_000_000


def logs(chance: random.Random) -> bytes:
    request = ExportLogsServiceRequest()
    records = request.resource_logs.add().scope_logs.add().log_records
    for _ in range(chance.randint(1, 500)):
        record = records.add(time_unix_nano=time(chance))
        record.attributes.add(key="n").value.int_value = chance.randint(0, 3)
    return bytes(request.SerializeToString())


def metrics(chance: random.Random) -> bytes:
    request = ExportMetricsServiceRequest()
    points = request.resource_metrics.add().scope_metrics.add().metrics.add(name="m").gauge.data_points
    whole = chance.random() < 0.5
    for _ in range(chance.randint(1, 500)):
        points.add(time_unix_nano=time(chance), as_double=chance.randint(0, 200) / (1 if whole else 4))
    return bytes(request.SerializeToString())


def traces(chance: random.Random) -> bytes:
    request = ExportTraceServiceRequest()
    spans = request.resource_spans.add().scope_spans.add().spans
    for _ in range(chance.randint(1, 500)):
        span = spans.add(
            trace_id=b"t" * 16, span_id=b"%08d" % chance.randint(0, 150), start_time_unix_nano=time(chance)
        )
        if chance.random() < 0.1:
            span.attributes.add(key="rare").value.string_value = chance.choice("ab")
    return bytes(request.SerializeToString())


def number(batch: pa.RecordBatch) -> pa.Array:
    names = [name for name in ("value", "int_value") if name in batch.schema.names]
    return pc.coalesce(*(batch.column(name).cast(pa.float64()) for name in names))


def time(chance: random.Random) -> int:
    """Mostly the same."""
    return START + (1 if chance.random() < 0.8 else chance.randint(0, 3))


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize(("spec", "request_of"), [(LOGS, logs), (METRICS, metrics), (TRACES, traces)])
def test_long_runs_are_merged_as_short_ones(spec: SignalSpec, request_of: Any, seed: int, tmp_path: Path) -> None:
    chance = random.Random(seed)
    contents = [request_of(chance) for _ in range(3)]
    contents += chance.sample(contents, 2)
    chance.shuffle(contents)
    store = a_store()
    segments = ingested(store, spec, contents)
    found = {}
    for memory in (64 << 20, 1 << 18, 1):
        made = merge(store, spec, segments, tmp_path, memory)
        assert made is not None
        found[memory] = bytes(store.get(made.path, max_bytes=1 << 20))
        rows = read(store, made)
    assert rows == expected(store, spec, segments)
    assert len(rows) < sum(segment.rows for segment in segments)
    assert len({*found.values()}) == 1


def test_rows_that_are_not_wanted_are_none_of_the_run(tmp_path: Path) -> None:
    chance = random.Random(9)
    store = a_store()
    contents = [metrics(chance) for _ in range(3)]
    opened = open_segments(store, ingested(store, METRICS, [*contents, *contents]), tmp_path)

    def small(batch: pa.RecordBatch) -> pa.Array:
        return pc.less(number(batch), 25)

    def rows(memory: int, dedupe: bool) -> list[Any]:
        batches = list(
            MergedRows(METRICS, opened, memory, row_filter=small, same_row=row_of(METRICS).same_row if dedupe else None)
        )
        times = [time for batch in batches for time in batch.column("timestamp").cast(pa.int64()).to_pylist()]
        return list(zip(times, [value for batch in batches for value in number(batch).to_pylist()], strict=True))

    assert len(rows(1, dedupe=False)) > len(rows(1, dedupe=True)) > 50
    for dedupe in (True, False):
        assert rows(1, dedupe) == rows(64 << 20, dedupe)


@pytest.mark.parametrize("seed", range(10))
def test_of_equal_rows_of_a_run_the_last_is_kept(seed: int) -> None:
    chance = np.random.default_rng(seed)
    digests = chance.integers(0, chance.choice([1, 30, 10_000]), 3000).astype(np.uint64)
    has_identity = (chance.random(3000) < 0.9) | (seed % 2 == 0)
    last = {digest: place for place, digest in enumerate(digests.tolist()) if has_identity[place]}
    wanted = [not has_identity[place] or last[digest] == place for place, digest in enumerate(digests.tolist())]
    cuts = np.sort(chance.integers(0, 3000, 5))
    pieces = list(zip(np.split(digests, cuts), np.split(has_identity, cuts), strict=True))
    for at_once in (1, 7, 1000, 5000):
        assert find_kept(pieces, 3000, at_once).tolist() == wanted
    assert find_kept([(digests, True)], 4000, 1000).sum() == len({*digests.tolist()})


def test_a_run_that_nothing_tells_apart_is_kept_whole() -> None:
    assert find_kept([(np.zeros(3, np.uint64), False)], 3, 1).tolist() == [True] * 3
