"""Units of work in Spark's tasks: what a Python worker of Spark runs (`TaskFunction` in pipeline/ask/run.py).

Comes in: the settings, pickled by the process that leases Spark, and a unit in bytes (query/unit.py). Goes out: the
frames of its answer (query/answer_frames.py), the same that a query worker sends over HTTP.

What always holds: a Python worker opens its QueryWorker once and keeps it for the tasks that follow, with a cache of
its own below Spark's local directory, which goes with Spark. The settings hold no secret but those of the object store.
What a unit allocates is bounded by query_spark_memory: in its sandbox, or by RLIMIT_DATA (pipeline/daemon.py).
"""

from __future__ import annotations

import errno
import logging
import os
import pickle
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path

from lakerunner.model.errors import LakerunnerError, UserError, full_message
from lakerunner.objects.open import HurryingStore, StoreAddress, shared_store
from lakerunner.pipeline.ask.run import TaskFunction
from lakerunner.plan.operator import Operator
from lakerunner.query.answer_frames import answer_frames, error_frame
from lakerunner.query.contract.failures import Limits
from lakerunner.query.metrics.metric_segments import MetricSegments
from lakerunner.query.operator_table import OPERATORS
from lakerunner.query.sandbox.pool import Sandboxes
from lakerunner.query.segment_cache.cache import SegmentCache
from lakerunner.query.slots import Slots
from lakerunner.query.unit import Unit
from lakerunner.query.worker import QueryWorker

_LOCAL_DIRECTORIES = "SPARK_LOCAL_DIRS"  # Spark tells its Python workers
_FOLDER = "lakerunner-units"
_SANDBOX_SHARE = 4, 3  # a sandbox allocates more than DuckDB counts: of four parts of the memory DuckDB has three
_METRICS_SHARE = 4  # of the memory, for samples that are kept between tasks
_logger = logging.getLogger("lakerunner.spark.units")


@dataclass(frozen=True)
class UnitSettings:
    """`memory` is the setting query_spark_memory, of `memory_bytes`. Cached files have `cache_bytes` in all Python
    workers together, of which there are `slots`. Everything else is as for query workers."""

    address: StoreAddress = field(repr=False)
    memory: str
    memory_bytes: int
    seconds: float
    unit_max_rows: int
    cache_bytes: int
    metrics_bytes: int
    slots: int = 1

    @property
    def limits(self) -> Limits:
        whole, part = _SANDBOX_SHARE
        return Limits(
            f"{(self.memory_bytes * part // whole) >> 20}MiB",
            self.seconds,
            self.unit_max_rows,
            rows_setting="unit_max_rows",
            memory_setting=f"query_spark_memory {self.memory}",
        )


def task_function(settings: UnitSettings) -> TaskFunction:
    """Return what Spark is told to run."""
    return TaskFunction(__name__, run_unit.__name__, pickle.dumps(settings))


def run_unit(settings: bytes, content: bytes) -> Iterator[bytes]:
    """Run one unit and give the frames of its answer."""
    return run_unit_with(settings, content, OPERATORS)


def run_unit_with(settings: bytes, content: bytes, operators: Mapping[str, type[Operator]]) -> Iterator[bytes]:
    """Run one unit of these operators."""
    try:
        unit = Unit.from_bytes(content, operators)
        answer = _worker(settings).run(unit)
    except LakerunnerError as error:
        _report(error)
        yield error_frame(error)
        return
    with closing(answer):
        yield from answer_frames(answer, unit.leaf.operator, _report)


@cache
def _worker(settings: bytes) -> QueryWorker:
    """Open the worker of this process. There is one for each value of the settings, and so one."""
    given: UnitSettings = pickle.loads(settings)  # noqa: S301 - from the process that leases Spark
    directory = _local_directory() / _FOLDER
    limits = replace(given.limits, hidden=(directory,))
    hurried = shared_store(replace(given.address, retries=0))
    store = HurryingStore(shared_store(given.address), hurried)
    cache_ = SegmentCache(store, directory / "segments", max(1, given.cache_bytes // given.slots))
    sandboxes = Sandboxes(limits, threads=1, spill_directory=directory / "spill")
    metrics = MetricSegments(cache_, keep_bytes=min(given.metrics_bytes, given.memory_bytes // _METRICS_SHARE))
    return QueryWorker(cache_, sandboxes, Slots(1), metrics, limits)


def _local_directory() -> Path:
    """Return Spark's directory for this executor, which Spark removes at its end."""
    return Path(os.environ.get(_LOCAL_DIRECTORIES, "").split(",")[0] or tempfile.gettempdir()).resolve()


def _report(error: Exception) -> None:
    """Log what the client is not told. What outgrew this process is raised again: the task fails, so that Spark tries
    it once more in a process that holds nothing, and then reports it (pipeline/ask/run.py)."""
    if _is_out_of_memory(error):
        _worker.cache_clear()
        raise MemoryError(f"{type(error).__name__}: {error}") from error
    if not isinstance(error, LakerunnerError):
        _logger.error("unit failed", exc_info=error)
    elif not isinstance(error, UserError):
        _logger.warning("unit failed: %s", full_message(error))


def _is_out_of_memory(error: Exception) -> bool:
    """Tell a failed allocation: the kernel names it ENOMEM, C code that forgets to name it makes a SystemError, and a
    thread whose stack does not fit cannot start."""
    if isinstance(error, OSError):
        return error.errno == errno.ENOMEM
    return isinstance(error, MemoryError | SystemError) or str(error) == "can't start new thread"
