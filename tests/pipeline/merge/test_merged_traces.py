"""The index of traces of a merged segment says what ingest says of the same spans, wherever row groups begin."""

from __future__ import annotations

import io
import random

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from lakerunner.model.signal import TRACES
from lakerunner.pipeline.segment import trace_index
from lakerunner.pipeline.segment.trace_index import TraceIndexSide
from suites.ingested import START, Ingested, ingested, random_spans

INDEX = "traces.parquet"


def built(case: Ingested, sizes: list[int]) -> pq.ParquetFile:
    """From row groups of these sizes, the last of them again and again."""
    rows = pa.Table.from_batches(case.row_groups()).combine_chunks().to_batches()[0]
    side = TraceIndexSide()
    at, number = 0, 0
    while at < rows.num_rows:
        size = sizes[min(number, len(sizes) - 1)]
        side.add(rows.slice(at, size))
        at, number = at + size, number + 1
    return pq.ParquetFile(io.BytesIO(bytes(side.finish().data)))


@pytest.mark.parametrize("seed", range(20))
def test_it_says_what_ingest_says(seed: int) -> None:
    chance = random.Random(seed)
    case = ingested(TRACES, *(random_spans(chance, traces=chance.choice([2, 8, 200])) for _ in range(3)))
    wanted = pq.read_table(io.BytesIO(case.side(INDEX)))
    for sizes in ([10**6], [1], [7], [chance.randint(1, 20) for _ in range(30)]):
        found = built(case, sizes)
        assert found.read().equals(wanted)
        assert found.schema.equals(pq.ParquetFile(io.BytesIO(case.side(INDEX))).schema)


def test_row_groups_of_the_index_are_as_those_of_ingest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trace_index, "ROW_GROUP_TRACES", 10)
    case = ingested(TRACES, *(random_spans(random.Random(seed), 80, traces=55) for seed in range(2)))
    for file in (built(case, [9]), pq.ParquetFile(io.BytesIO(case.side(INDEX)))):
        groups = [file.metadata.row_group(number) for number in range(file.num_row_groups)]
        assert [group.num_rows for group in groups][:-1] == [10] * (len(groups) - 1)
        assert 0 < groups[-1].num_rows <= 10
        assert groups[0].sorting_columns == (pq.SortingColumn(0),)
        assert groups[0].column(0).has_offset_index


def test_a_trace_across_many_row_groups_has_its_first_fifty_services() -> None:
    requests = []
    for part in range(2):
        request = ExportTraceServiceRequest()
        for number in range(part, 160, 2):
            resource = request.resource_spans.add()
            resource.resource.attributes.add(key="service.name").value.string_value = f"s{number % 80:02}"
            span = resource.scope_spans.add().spans.add(trace_id=b"t" * 16, span_id=bytes([number]) * 8)
            span.start_time_unix_nano = START + number
            span.parent_span_id = b"" if number in (101, 150) else b"parent"
            span.name = f"n{number}"
        requests.append(bytes(request.SerializeToString()))
    case = ingested(TRACES, *requests)
    for size in (1, 3, 70, 200):
        (row,) = built(case, [size]).read().drop_columns(["start_timestamp"]).to_pylist()
        assert row == {
            "trace_id": b"t" * 16,
            "first_row": 0,
            "spans": 160,
            "errors": 0,
            "end_timestamp": None,
            "root_service_name": "s21",
            "root_name": "n101",
            "services": [f"s{number:02}" for number in range(50)],
        }
