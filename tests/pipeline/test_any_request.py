"""Any OTLP request that hypothesis can build comes back equal from a query: through the pipeline into a store, and out of
it through LakeQL as JSON, every column of every row.
"""

from __future__ import annotations

from hashlib import sha256
from pathlib import Path
from typing import Any
from uuid import UUID

import metrics_oracle
import otlp_oracle
import pytest
import test_metrics_random
import test_segments_random
import test_traces_random
import traces_oracle
from hypothesis import given
from lakeql_oracle import answered, shown
from otlp_oracle import COLLECTOR, MODIFIED_NS, ORGANIZATION, raw_of
from otlp_random import thorough

from lakerunner.lakeql.tables import LOGS_TABLE, METRICS_TABLE, SPANS_TABLE, Table
from lakerunner.model.segment import Segment
from lakerunner.model.time import TimeRange
from lakerunner.objects.local import LocalStore
from lakerunner.pipeline.segments import make_segments
from lakerunner.query.cache import SegmentCache
from lakerunner.query.engine import Engine
from lakerunner.query.rows import json_rows
from lakerunner.query.worker import QueryWorker

EXPECTED = {"logs": otlp_oracle.expected, "metrics": metrics_oracle.expected, "traces": traces_oracle.expected}


class Lake:
    """A store on disk, an index of the last request's segments that is a tuple, and who asks them."""

    def __init__(self, directory: Path) -> None:
        (directory / "store").mkdir()
        self.store = LocalStore(directory / "store")
        self.made: tuple[Segment, ...] = ()
        cache = SegmentCache(self.store, directory / "cache", 1 << 30)
        limits: dict[str, Any] = {"memory": "500MB", "threads": 1, "seconds": 60.0, "max_rows": 1_000_000}
        self.engine = Engine(self, QueryWorker(cache, **limits, spill_directory=directory / "spill").run)

    @property
    def segments(self) -> Lake:
        return self

    def pick(self, organization: UUID, signal: str, time: TimeRange, *, frequency_ms: int = 0) -> list[Segment]:
        wanted = (organization, signal, frequency_ms)
        return [
            segment
            for segment in self.made
            if (segment.organization, segment.signal, segment.frequency_ms) == wanted and segment.time.overlaps(time)
        ]

    def check(self, table: Table, request: Any) -> None:
        """All that the table shows of this request is all that the request says."""
        data = request.SerializeToString()
        raw = raw_of(data, f"{sha256(data).hexdigest()}.binpb")  # another request's segments have other ids
        made = make_segments(table.spec, ORGANIZATION, COLLECTOR, [raw], self.store.put)
        assert [reason for _, reason in made.failed] == ([] if data else ["the file is empty"])
        self.made = made.segments
        answer = self.engine.sql(ORGANIZATION, f"SELECT * FROM {table.spec.table}", MODIFIED_NS)
        found = answered(row for batch in answer for row in json_rows(batch))
        assert found == shown(table, EXPECTED[table.spec.name]([request]))


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Lake:
    return Lake(tmp_path_factory.mktemp("lake"))


@thorough(60)
@given(request=test_segments_random.requests())
def test_any_logs_come_back_from_a_query(lake: Lake, request: Any) -> None:
    lake.check(LOGS_TABLE, request)


@thorough(60)
@given(request=test_metrics_random.requests())
def test_any_metrics_come_back_from_a_query(lake: Lake, request: Any) -> None:
    lake.check(METRICS_TABLE, request)


@thorough(60)
@given(request=test_traces_random.requests())
def test_any_spans_come_back_from_a_query(lake: Lake, request: Any) -> None:
    lake.check(SPANS_TABLE, request)
