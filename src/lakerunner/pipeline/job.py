"""A Spark job of ours: one task per item, each a call of a plain function in a worker process.

Comes in: items and a function, which travel by pickle. Goes out: what the function gave for each, in their order. What
always holds: an exception of a task reaches the caller as it is, with its trace, and costs no worker its life.
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

if TYPE_CHECKING:  # workers import this module too, and have no use for sessions
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

T = TypeVar("T")
R = TypeVar("R")

_CANCEL_SECONDS = 5.0
_TRACE_FRAMES = -6  # the innermost ones; those above are Spark's and ours for every task


@dataclass(frozen=True)
class _Trouble:
    """An exception on its way from a task to the driver: raised there, it would cost the worker its life."""

    error: Exception
    trace: str


def run(spark: SparkSession, group: str, items: Sequence[T], task: Callable[[T], R]) -> list[R]:
    """One job, one task per item, the answers in the items' order. What a task raises is raised here; Crashed if a
    worker died, Unavailable if the job was cancelled or the JVM is gone. Interrupted, it cancels the jobs of the
    group."""
    if not items:
        return []
    context = spark.sparkContext
    try:
        context.setJobGroup(group, group)
        outcomes = context.parallelize(items, len(items)).map(partial(_attempt, task)).collect()
    except Py4JJavaError as error:
        from lakerunner.pipeline.session import is_alive  # here, for the same reason as above

        # A JVM that is told to end fails its jobs first, in words that sound as if a worker had died.
        gone = Unavailable("Spark's Java process has ended, or has stopped the session")
        raise (_explained(error) if is_alive(spark) else gone) from None
    except (Py4JError, PySparkRuntimeError, OSError, EOFError) as error:
        # An interrupt that hits py4j between a question and its answer shows as the confusion it left behind.
        if isinstance(error.__context__, KeyboardInterrupt):
            _cancel(context, group)
            raise error.__context__ from None
        raise Unavailable(f"Spark's Java process has ended: {type(error).__name__}: {error}") from None
    except BaseException:
        _cancel(context, group)
        raise
    return [_given(outcome) for outcome in outcomes]


def _given(outcome: R | _Trouble) -> R:
    if isinstance(outcome, _Trouble):
        outcome.error.add_note(f"in a task of the job:\n{outcome.trace}")
        raise outcome.error
    return outcome


def warm(spark: SparkSession) -> None:
    """Start the workers, so that the first box finds them ready."""
    slots = spark.sparkContext.defaultParallelism
    run(spark, "warm", range(slots), _nothing)


def probe(spark: SparkSession) -> None:
    """Whether workers live at all; Unavailable if not even one that does nothing comes back."""
    run(spark, "probe", [0], _nothing)


def _attempt(task: Callable[[T], R], item: T) -> R | _Trouble:
    try:
        return task(item)
    except MemoryError as error:  # as if the kernel had killed the worker: perhaps the input is to blame
        return _Trouble(Crashed(f"a task ran out of memory: {error}"), "")
    except Exception as error:  # noqa: BLE001 - reported: the driver raises it
        trace = "".join(traceback.format_exception(error, limit=_TRACE_FRAMES))
        return _Trouble(_portable(error), trace)


def _portable(error: Exception) -> Exception:
    """The error itself where it can be sent, else one that says the same."""
    try:
        return pickle.loads(pickle.dumps(error))  # type: ignore[no-any-return]  # noqa: S301 - our own
    except Exception:  # noqa: BLE001 - whatever keeps it from travelling, its text goes
        return RuntimeError(f"{type(error).__name__}: {error}")


def _cancel(context: SparkContext, group: str) -> None:
    """Our own connection waits for the job's answer, so the cancelling goes over another thread's."""
    cancelling = threading.Thread(target=context.cancelJobGroup, args=(group,), daemon=True)
    cancelling.start()
    cancelling.join(_CANCEL_SECONDS)


def _explained(error: Py4JJavaError) -> Exception:
    """What Spark says, without the frames of its own code. A task reports its exceptions itself, so what comes
    this way is a lost worker or executor, a cancelled job, or something in a task's answer that cannot travel."""
    message = str(error.java_exception.getMessage()).partition("\n\tat ")[0].strip()
    if "[SPARK_JOB_CANCELLED]" in message:
        return Unavailable("the Spark job was cancelled")
    _, traced, trace = message.partition("PythonException: Traceback")
    if traced:
        return RuntimeError(f"a Spark task failed: Traceback{trace}")
    return Crashed(f"Spark did not finish the job: {message}")


def _nothing(_: int) -> None:
    """The task of a job that only wants the workers to be there."""
