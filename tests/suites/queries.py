"""Engines for tests: one engine over an index and workers, and the languages that compile for it."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from lakerunner.lakeql.statements import read_statement
from lakerunner.promql.operators import Limits
from lakerunner.query.answer import Answer
from lakerunner.query.engine import Engine
from lakerunner.query.gather import GatherOptions
from lakerunner.query.known_segments import KnownSegments, SegmentIndex
from lakerunner.query.metric_queries import MetricQueries
from lakerunner.query.outgrown import Outgrown
from lakerunner.query.row_answer import Coordinator
from lakerunner.query.sandbox.pool import Sandboxes
from lakerunner.query.sql import Question, SqlQueries
from lakerunner.query.workers import Workers


def sql_queries(
    index: SegmentIndex, workers: Workers, sandboxes: Sandboxes, outgrown: Outgrown | None = None, **how: Any
) -> SqlQueries:
    engine = Engine(KnownSegments(index), workers, Coordinator(sandboxes), **how)
    return SqlQueries(engine, sandboxes, outgrown)


def metric_queries(
    index: SegmentIndex,
    workers: Workers,
    limits: Limits | None = None,
    *,
    shard_rows: int = 4_000_000,
    most_shards: int = 16,
    seconds: float = 300.0,
    delayed_names: bool = False,
) -> MetricQueries:
    gathering = GatherOptions(shard_rows=shard_rows, most_shards=most_shards)
    engine = Engine(KnownSegments(index), workers, gathering=gathering, seconds=seconds)
    return MetricQueries(engine, limits or Limits(), delayed_names=delayed_names)


def by_spark_sql(
    queries: SqlQueries, organization: UUID, text: str, now_ns: int, parameters: dict[str, Any] | None = None
) -> Answer:
    """Have Spark SQL run the query whole, also where its units could run as tasks."""
    question = Question(text, now_ns, parameters or {}, engine="spark")
    return queries._spark_sql(organization, question, read_statement(text))
