"""Answers that DuckDB adds up and cuts, by the tables of streams, are those of rows without such tables."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from lakerunner.logql.columns.deliveries import Deliveries
from lakerunner.logql.columns.partial_sums import SUM_SCHEMA, check_deliveries, delivery_rows, sum_batch
from lakerunner.logql.log_lines import LogLines
from lakerunner.logql.log_plan import LogqlQuestion, compile_logql
from lakerunner.logql.stored_sums import StoredSums
from lakerunner.plan.operator import Operator, RowOperator
from lakerunner.query.engine import Engine
from lakerunner.query.options import Options
from lakerunner.query.series_answer import SeriesAnswer
from lakerunner.series.aggregations.aggregation import NotSplit
from logql.test_stream_tables import lake_of
from pipeline.test_stream_columns import Sent
from query.sample_lake import OWN, Lake
from suites.ingested import START

ALL = '{service_name=~".+"}'
COUNTS = [
    f"sum(count_over_time({ALL}[1ms]))",
    f"sum by (detected_level) (count_over_time({ALL}[1ms]))",
    f"sum by (service_name) (bytes_over_time({ALL}[1ms]))",
    f'sum by (service_name, scope_name) (rate({ALL} |= "e" [1ms]))',
    f'sum by (detected_level) (bytes_rate({ALL} != "info" [1ms]))',
    f'sum by (nothing) (count_over_time({ALL} | detected_level=~"err.*|warn" [1ms]))',
    'sum by (service_name) (count_over_time({service_name="cart"} |~ "[a-f]" [1ms]))',
    'sum(count_over_time({service_name="none"}[1ms]))',
]
LINES = [(f"{ALL}{stages}", limit) for stages in ("", ' |= "e"', ' |~ "[0-9]" | json') for limit in (1, 3, 100)]


def asked(engine: Engine, text: str, limit: int = 100, direction: Any = "backward") -> Any:
    question = LogqlQuestion(text, START, START + 20, 2, limit, direction)
    answer = engine.answer(OWN, compile_logql(question, START + 20), Options(START + 20))
    if isinstance(answer, SeriesAnswer):
        (group,) = answer
        value: Any = group.value
        points = np.where(value.present, value.values, np.nan).tolist()
        return dict(zip(map(tuple, value.labels), map(str, points), strict=True))
    return [tuple(row.values()) for batch in answer for row in batch.to_pylist()]


@pytest.mark.parametrize("seed", range(3))
def test_answers_do_not_depend_on_tables(seed: int, tmp_path: Path) -> None:
    sent = Sent(random.Random(seed), files=3)
    requests = [*sent.requests, *(sent.requests[:seed])]  # some come twice
    lakes = [lake_of(tmp_path / str(old), requests, old) for old in (0, 2, len(requests))]
    engines = [lake.engine().engine for lake in lakes]
    try:
        for text in COUNTS:
            one, *others = (asked(engine, text) for engine in engines)
            assert others == [one, one], text
        for text, limit in LINES:
            for direction in ("backward", "forward"):
                one, *others = (asked(engine, text, limit, direction) for engine in engines)
                assert others == [one, one], (text, limit, direction)
    finally:
        for lake in lakes:
            lake.close()


def planned(lake: Lake, text: str) -> Operator:
    """Return the operator that runs over the segments of the lake in one unit."""
    plan = compile_logql(LogqlQuestion(text, START, START + 20, 2), START + 20)
    operator, segments = plan.leaves[0].operator, lake.all
    assert isinstance(operator, RowOperator)
    if not operator.wants_streams:
        return operator
    return operator.with_streams(plan.leaves[0].scan, segments, lake.worker().cache.stream_tables(segments)).operator


def test_tables_are_used_where_that_is_exact(tmp_path: Path) -> None:
    sent = Sent(random.Random(5), files=2)
    whole = lake_of(tmp_path / "whole", sent.requests, 0)
    twice = lake_of(tmp_path / "twice", [*sent.requests, sent.requests[0]], 0)
    old = lake_of(tmp_path / "old", sent.requests, 1)
    for text in COUNTS[:-1]:
        assert [type(planned(lake, text)) is StoredSums for lake in (whole, twice, old)] == [True, False, False], text
    for text, _ in LINES:
        found = [planned(lake, text) for lake in (whole, twice, old)]
        assert [isinstance(one, LogLines) and one.of_streams is not None for one in found] == [True, False, False], text
    for text in (f"count_over_time({ALL}[1ms])", f"sum by (a) (count_over_time({ALL} | json [1ms]))"):
        assert not isinstance(planned(whole, text), StoredSums), text
    filtered = planned(whole, f'{ALL} | detected_level="error"')
    assert isinstance(filtered, LogLines)
    assert filtered.of_streams is None


def whole(*rows: tuple[int, int, int]) -> pa.RecordBatch:
    ids, first, last = (np.array(column, np.int64) for column in zip(*rows, strict=True))
    return delivery_rows(Deliveries(ids, first, last))


def by_row(delivery: int, block: int, bits: int) -> pa.RecordBatch:
    return sum_batch(
        [],
        np.zeros(0, np.int64),
        np.zeros(0),
        np.zeros(0, np.int64),
        tuple(  # type: ignore[arg-type]
            np.array([one]) for one in (delivery, block, bits)
        ),
    )


def test_units_that_share_a_delivery_are_not_added() -> None:
    """One delivery may be in several hours, but not twice at one time."""
    for batches in (
        [whole((1, 0, 9)), whole((1, 10, 19), (2, 0, 5))],
        [whole((1, 0, 9)), by_row(2, 0, 3)],
        [by_row(1, 0, 1), by_row(1, 0, 2), by_row(1, 1, 1)],
    ):
        check_deliveries(batches)
    for batches in (
        [whole((1, 0, 9)), whole((2, 0, 5), (1, 9, 19))],
        [whole((1, 0, 9)), by_row(1, 0, 3)],
        [by_row(1, 0, 1), by_row(1, 0, 3)],
        [pa.record_batch([pa.nulls(1, one.type) for one in SUM_SCHEMA], SUM_SCHEMA)],
    ):
        with pytest.raises(NotSplit):
            check_deliveries(batches)


def test_a_sandbox_runs_only_where_rows_are_read(tmp_path: Path) -> None:
    """`open` in an account are the seconds that it took to get a worker's sandbox ready."""
    lake = lake_of(tmp_path, Sent(random.Random(5), files=4).requests, 0)
    try:
        engine = lake.engine().engine
        for text, opened in ((f'{ALL} | trace_id="{"ff" * 16}"', False), (ALL, True)):
            question = LogqlQuestion(text, START, START + 20, 2, None)
            answer = engine.answer(OWN, compile_logql(question, START + 20), Options(START + 20))
            rows = sum(batch.num_rows for batch in answer)
            assert (bool(rows), "open" in answer.account.seconds) == (opened, opened)
    finally:
        lake.close()
