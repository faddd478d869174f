"""Run a Spark job: one task per item, each a call of a plain function in a worker process.

Comes in: items and a function, which are pickled. Goes out: the results of the function, in the order of the items.
What always holds: an exception of a task reaches the caller unchanged, with its trace, and does not end the worker.
"""

from __future__ import annotations

import pickle
import threading
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from py4j.protocol import Py4JError, Py4JJavaError  # type: ignore[import-untyped]
from pyspark.errors import PySparkRuntimeError

from lakerunner.model.errors import Crashed, Unavailable

if TYPE_CHECKING:  # workers import this module too, and need no sessions
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

T = TypeVar("T")
R = TypeVar("R")

_CANCEL_SECONDS = 5.0
_TRACE_FRAMES = -6  # only the innermost: those above are the same for every task


@dataclass(frozen=True)
class _TaskError:
    """An exception on its way from a task to the driver: if the task raised it, the worker would end."""

    error: Exception
    trace: str


def run_tasks(spark: SparkSession, group: str, items: Sequence[T], task: Callable[[T], R]) -> list[R]:
    """Run one job, one task per item; return the results in the items' order. Raises what a task raised; Crashed if a
    worker died, Unavailable if the job was cancelled or the JVM is gone. If interrupted, it cancels the jobs of the
    group."""
    if not items:
        return []
    context = spark.sparkContext
    try:
        context.setJobGroup(group, group)
        outcomes = context.parallelize(items, len(items)).map(partial(_attempt, task)).collect()
    except Py4JJavaError as error:
        from lakerunner.pipeline.session import is_alive  # imported here, for the same reason as above

        # A JVM that is being stopped fails its jobs first, with an error that looks as if a worker had died.
        gone = Unavailable("Spark's Java process has ended, or has stopped the session")
        raise (_explain(error) if is_alive(spark) else gone) from None
    except (Py4JError, PySparkRuntimeError, OSError, EOFError) as error:
        # An interrupt between py4j's request and its answer shows as a protocol error: raise the interrupt instead.
        if isinstance(error.__context__, KeyboardInterrupt):
            _cancel(context, group)
            raise error.__context__ from None
        raise Unavailable(f"Spark's Java process has ended: {type(error).__name__}: {error}") from None
    except BaseException:
        _cancel(context, group)
        raise
    return [_unwrap(outcome) for outcome in outcomes]


def _unwrap(outcome: R | _TaskError) -> R:
    if isinstance(outcome, _TaskError):
        outcome.error.add_note(f"in a task of the job:\n{outcome.trace}")
        raise outcome.error
    return outcome


def start_workers(spark: SparkSession) -> None:
    """Start the workers, so that the first box finds them ready."""
    slots = spark.sparkContext.defaultParallelism
    run_tasks(spark, "warm", range(slots), _noop)


def probe_workers(spark: SparkSession) -> None:
    """Raise Unavailable if not even a task that does nothing completes."""
    run_tasks(spark, "probe", [0], _noop)


def _attempt(task: Callable[[T], R], item: T) -> R | _TaskError:
    try:
        return task(item)
    except MemoryError as error:  # like a worker killed by the kernel: perhaps caused by the input
        return _TaskError(Crashed(f"a task ran out of memory: {error}"), "")
    except Exception as error:  # noqa: BLE001 - reported: the driver raises it
        trace = "".join(traceback.format_exception(error, limit=_TRACE_FRAMES))
        return _TaskError(_make_picklable(error), trace)


def _make_picklable(error: Exception) -> Exception:
    """Return the exception if it can be pickled, else a RuntimeError with its text."""
    try:
        return pickle.loads(pickle.dumps(error))  # type: ignore[no-any-return]  # noqa: S301 - our own
    except Exception:  # noqa: BLE001 - whatever prevents pickling, send the text
        return RuntimeError(f"{type(error).__name__}: {error}")


def _cancel(context: SparkContext, group: str) -> None:
    """Cancel in another thread, which has its own connection: ours waits for the job's answer."""
    cancelling = threading.Thread(target=context.cancelJobGroup, args=(group,), daemon=True)
    cancelling.start()
    cancelling.join(_CANCEL_SECONDS)


def _explain(error: Py4JJavaError) -> Exception:
    """Return Spark's error without the frames of its own code. A task reports its exceptions itself, so this is a lost
    worker or executor, a cancelled job, or a result that cannot be pickled."""
    message = str(error.java_exception.getMessage()).partition("\n\tat ")[0].strip()
    if "[SPARK_JOB_CANCELLED]" in message:
        return Unavailable("the Spark job was cancelled")
    _, traced, trace = message.partition("PythonException: Traceback")
    if traced:
        return RuntimeError(f"a Spark task failed: Traceback{trace}")
    return Crashed(f"Spark did not finish the job: {message}")


def _noop(_: int) -> None:
    """Do nothing: a job of these tasks only starts the workers."""
