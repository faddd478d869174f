"""Rollups as a Spark job: a task for each piece of work. docs/formats/rollups.md."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

from lakerunner.objects.open import StoreAddress
from lakerunner.pipeline.compact import CompactLimits, Outcome
from lakerunner.pipeline.job import run
from lakerunner.pipeline.rollup.work import RollupWork, rollup_work

if TYPE_CHECKING:  # workers import this module too, and have no use for sessions
    from pyspark.sql import SparkSession

JOB_GROUP = "rollup"


def rollup(
    spark: SparkSession, works: Sequence[RollupWork], address: StoreAddress, limits: CompactLimits
) -> list[Outcome]:
    """What became of each, in their order, in one Spark job. Unavailable if the store is away, Crashed if a worker
    died; interrupted, it cancels its job."""
    return run(spark, JOB_GROUP, works, partial(rollup_work, address=address, limits=limits))
