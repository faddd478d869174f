"""What a query process runs in Spark: SQL whole, from plan to rows, and units of any language as tasks.

Comes in, for SQL: a plan (plan/spark.py), the segments picked for each of its scans, the Arrow schema that DuckDB gives
the query's answer. Goes out: the answer's rows in that schema. For a task: bytes in, bytes out.

What always holds: SQL has a Spark session of its own, over the one of the process, so that its relations and settings
are nobody else's. A query or task runs for `seconds`, SQL gives `max_rows` rows at most; cancelled, its jobs end. The
text of SQL reaches Spark's parser as it is written: no statement is run in a session that would put variables into it.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib import import_module
from secrets import token_hex

import pyarrow as pa
from py4j.protocol import Py4JError, Py4JJavaError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException
from pyspark.serializers import NoOpSerializer
from pyspark.sql import DataFrame, SparkSession
from pyspark.util import _load_from_socket

from lakerunner.model.errors import Crashed, LakerunnerError, TooLarge, TooLong, Unavailable, UserError
from lakerunner.model.segment import Segment
from lakerunner.objects.open import StoreAddress
from lakerunner.pipeline.ask.scan_source import ScanWork, group_segments, load_scan, reported_error
from lakerunner.pipeline.ask.spark_functions import register_functions
from lakerunner.pipeline.session import SUBSTITUTE
from lakerunner.plan.spark import SparkPlan

_AGAIN_SECONDS = 0.5
_TASKS_PER_SLOT = 4  # smaller groups, so that one large segment does not keep all others waiting
_BATCH_ROWS = 2048
_SETTINGS = {
    # Whatever spark_conf says: with these, the parser sees the statement and its literals as lakeql/spark/ wrote them.
    SUBSTITUTE: "false",
    "spark.sql.parser.escapedStringLiterals": "false",
    "spark.sql.ansi.doubleQuotedIdentifiers": "false",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.ansi.enabled": "true",  # what overflows is an error, as it is to DuckDB
    "spark.sql.groupByOrdinal": "false",
    "spark.sql.orderByOrdinal": "false",
    "spark.sql.caseSensitive": "true",
    # Beyond this many rows a sorted answer with a limit is sorted by all tasks, and not held by the driver.
    "spark.sql.execution.topKSortFallbackThreshold": "10000",
    "spark.sql.execution.arrow.maxRecordsPerBatch": str(_BATCH_ROWS),
}
# An allocation that failed, in Python or Arrow; code that cannot bear that, of the store's client, ends its process.
_OUTGROWN = re.compile(r"(?m)^\s*(pyarrow\.lib\.Arrow)?MemoryError\b|Python worker exited unexpectedly")
_CONDITION = re.compile(r"^\[([A-Z_.0-9]+)\] ?")


@dataclass(frozen=True)
class AskLimits:
    """Of one query: seconds of running, rows of the answer, and as a text the memory of each Python worker."""

    seconds: float
    max_rows: int
    memory: str


@dataclass(frozen=True)
class TaskFunction:
    """What tasks run, by module and name: `function(settings, content)` gives the bytes of an answer, piece by piece.
    It travels as names, because this package does not know the function. A repr shows no secret of the settings."""

    module: str
    name: str
    settings: bytes = field(repr=False)

    def __call__(self, contents: Iterable[bytes]) -> Iterator[bytes]:
        """In a Python worker of Spark: give the answers to these contents."""
        function: Callable[[bytes, bytes], Iterator[bytes]] = getattr(import_module(self.module), self.name)
        for content in contents:
            yield from function(self.settings, bytes(content))


class JobGroup:
    """The jobs of one query or unit, which end together: when they are cancelled, or over their time."""

    def __init__(self, limits: AskLimits) -> None:
        self._limits = limits
        self._group = f"query-{token_hex(8)}"
        self._lock = threading.Lock()
        self._session: SparkSession | None = None
        self._timer: threading.Timer | None = None
        self._stopped = ""

    @contextmanager
    def running(self, session: SparkSession) -> Iterator[None]:
        """Run the block's jobs, which this thread starts. What Spark raises is raised in our words."""
        with self._lock:
            if self._stopped:
                raise cancelled()
            self._session = session
            self._wait(self._limits.seconds, "late")
        try:
            session.sparkContext.setJobGroup(self._group, "query", interruptOnCancel=True)
            yield
        except (PySparkException, Py4JError, OSError, EOFError) as error:
            raise self._explained(error) from None
        finally:
            with self._lock:
                if self._timer:
                    self._timer.cancel()
                self._session = None

    def cancel(self) -> None:
        """Stop the jobs, from any thread, or keep them from starting. Cancelling twice is fine."""
        self._stop("cancelled")

    def _explained(self, error: Exception) -> LakerunnerError:
        if not self._stopped:
            return explain_error(error, self._limits.memory)
        late = self._stopped == "late"
        return TooLong(f"stopped after {self._limits.seconds:g} s: limit query_seconds") if late else cancelled()

    def _stop(self, why: str) -> None:
        with self._lock:
            self._stopped = self._stopped or why
            if self._session is not None:
                # PySpark has only the call that misses the jobs which are about to begin. This one misses the stages of
                # a query that is still planned, which begin on their own: it is made again until the query has ended.
                self._session.sparkContext._jsc.sc().cancelJobGroupAndFutureJobs(self._group)
                self._wait(_AGAIN_SECONDS, why)

    def _wait(self, seconds: float, why: str) -> None:
        """Stop after this many seconds, unless the jobs end before."""
        if self._timer:
            self._timer.cancel()
        self._timer = threading.Timer(seconds, self._stop, (why,))
        self._timer.daemon = True
        self._timer.start()


class SparkQueries:
    """What a process runs, in its one session: SQL whole, and units as tasks. Safe to use from many threads."""

    def __init__(
        self, session: SparkSession, address: StoreAddress, limits: AskLimits, function: TaskFunction | None = None
    ) -> None:
        self._session = session
        self._address = address
        self._limits = limits
        self._function = function

    def group(self) -> JobGroup:
        """Return what cancels one query or task."""
        return JobGroup(self._limits)

    def sql(
        self, group: JobGroup, plan: SparkPlan, segments: Sequence[Sequence[Segment]], schema: pa.Schema
    ) -> Iterator[pa.RecordBatch]:
        """Run a query whole and give its rows in this schema. `segments` are those of each scan."""
        with group.running(self._session):
            session = own_session(self._session)
            rows = self._frame(session, plan, segments).limit(self._limits.max_rows + 1).toArrow()
        if rows.num_rows > self._limits.max_rows:
            raise TooLarge(
                f"the answer has more than {self._limits.max_rows} rows, limit query_max_rows: "
                "return fewer with LIMIT or WHERE"
            )
        columns = [_cast(rows.column(number), field.type) for number, field in enumerate(schema)]
        yield from pa.table(columns, schema=schema).to_batches(_BATCH_ROWS)

    def task(self, group: JobGroup, content: bytes) -> Iterator[bytes]:
        """Run one task and give the bytes that it answers. They wait in the JVM, which bounds them by
        spark.driver.maxResultSize, until they are read."""
        if self._function is None:
            raise Unavailable("this process runs no tasks")
        context = self._session.sparkContext
        with group.running(self._session):
            answers = context.parallelize([content], 1).mapPartitions(self._function)
            # As PySpark's own shuffles have it: bytes pass as they are. A pickle of a task is never read here.
            answers._bypass_serializer = True  # type: ignore[attr-defined]
            place = context._jvm.PythonRDD.collectAndServe(answers._jrdd.rdd())  # type: ignore[union-attr]
        try:
            yield from _load_from_socket(place, NoOpSerializer())
        except (OSError, EOFError, PySparkException) as error:
            raise explain_error(error, self._limits.memory) from None

    def _frame(self, session: SparkSession, plan: SparkPlan, segments: Sequence[Sequence[Segment]]) -> DataFrame:
        tasks = session.sparkContext.defaultParallelism * _TASKS_PER_SLOT
        for scan, picked in zip(plan.scans, segments, strict=True):
            work = ScanWork(self._address, scan, group_segments(picked, tasks) if picked else ())
            load_scan(session, work).createOrReplaceTempView(scan.relation)
        refuse_substitution(session)
        return session.sql(plan.spark_sql)


def cancelled() -> UserError:
    return UserError("the query was cancelled")


def own_session(session: SparkSession) -> SparkSession:
    """Return a session for one query."""
    own = session.newSession()
    for name, value in _SETTINGS.items():
        own.conf.set(name, value)
    own.conf.set("spark.sql.shuffle.partitions", str(session.sparkContext.defaultParallelism))
    register_functions(own)
    return own


def refuse_substitution(session: SparkSession) -> None:
    """Raise Unavailable if Spark would replace ${env:NAME} in a statement by a variable of the server."""
    if session.conf.get(SUBSTITUTE) != "false":
        raise Unavailable(f"{SUBSTITUTE} is not false in Spark's session: no query is run in it")


def explain_error(error: Exception, memory: str) -> LakerunnerError:
    """What Spark says, without the frames of its code. Our own tasks say what they met."""
    if _OUTGROWN.search(str(error)):
        return TooLarge(
            "the query needs more than the memory of a Python worker of Spark "
            f"(query_spark_memory {memory}): select less, or raise it"
        )
    message = str(error)
    if "spark.driver.maxResultSize" in message:
        return TooLarge("the answer is larger than spark.driver.maxResultSize: select less")
    if isinstance(error, Py4JJavaError):
        return Crashed(f"Spark did not finish the query: {str(error.java_exception).partition(chr(10))[0]}")
    if not isinstance(error, PySparkException):
        return Unavailable(f"Spark's Java process has ended, or does not answer: {type(error).__name__}: {error}")
    told = reported_error(message)
    if told:
        return told
    first = message.strip().partition("\n")[0]
    if "Job aborted due to stage failure" in first and "[" not in first:
        return Crashed(f"Spark did not finish the query: {first}")
    return UserError(f"Spark cannot run the query: {_CONDITION.sub('', first)}")


def _cast(column: pa.ChunkedArray, kind: pa.DataType) -> pa.ChunkedArray:
    """A column of Spark's, in the type that DuckDB gives it; nanoseconds were carried as whole numbers."""
    return column if column.type == kind else column.cast(kind)
