"""One query in Spark, from plan to rows.

Comes in: a plan (plan/spark.py), the segments picked for each of its scans, the Arrow schema that DuckDB gives the
query's answer. Goes out: the answer's rows in that schema.

What always holds: a query has a Spark session of its own, over the one of the process, so that its relations and
settings are nobody else's. It runs for `seconds` and gives `max_rows` rows at most; cancelled, its job ends. Its text
reaches Spark's parser as it is written: no statement is run in a session that would put variables into it.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from secrets import token_hex

import pyarrow as pa
from py4j.protocol import Py4JError, Py4JJavaError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from lakerunner.model.errors import Crashed, LakerunnerError, TooLarge, TooLong, Unavailable, UserError
from lakerunner.model.segment import Segment
from lakerunner.objects.open import StoreAddress
from lakerunner.pipeline.ask.functions import register_functions
from lakerunner.pipeline.ask.source import ScanWork, grouped, load_scan, told_error
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
    # Beyond so many rows a sorted answer with a limit is sorted by all tasks, and not held by the driver.
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


class SparkQueries:
    """Safe to use from many threads. `session` is that of the process."""

    def __init__(self, session: SparkSession, address: StoreAddress, limits: AskLimits) -> None:
        self._session = session
        self._address = address
        self._limits = limits

    def start(self, plan: SparkPlan, segments: Sequence[Sequence[Segment]]) -> SparkRun:
        """At once: the work begins when its rows are asked for. `segments` are those of each scan."""
        return SparkRun(plan, segments, self._run)

    def _run(self, run: SparkRun, plan: SparkPlan, segments: Sequence[Sequence[Segment]]) -> pa.Table:
        try:
            session = own_session(self._session)
            run.began(session, self._limits.seconds)
            rows = self._frame(session, plan, segments).limit(self._limits.max_rows + 1).toArrow()
        except (PySparkException, Py4JError, OSError, EOFError) as error:
            raise run.explained(error, self._limits) from None
        finally:
            run.ended()
        if rows.num_rows > self._limits.max_rows:
            raise TooLarge(
                f"the answer has more than {self._limits.max_rows} rows, limit query_max_rows: "
                "return fewer with LIMIT or WHERE"
            )
        return rows

    def _frame(self, session: SparkSession, plan: SparkPlan, segments: Sequence[Sequence[Segment]]) -> DataFrame:
        tasks = session.sparkContext.defaultParallelism * _TASKS_PER_SLOT
        for scan, picked in zip(plan.scans, segments, strict=True):
            work = ScanWork(self._address, scan, grouped(picked, tasks) if picked else ())
            load_scan(session, work).createOrReplaceTempView(scan.relation)
        refuse_substitution(session)
        return session.sql(plan.spark_sql)


class SparkRun:
    """One query. `batches` is read by one thread; any thread may cancel."""

    def __init__(
        self,
        plan: SparkPlan,
        segments: Sequence[Sequence[Segment]],
        run: Callable[[SparkRun, SparkPlan, Sequence[Sequence[Segment]]], pa.Table],
    ) -> None:
        self._plan = plan
        self._segments = segments
        self._run = run
        self._group = f"query-{token_hex(8)}"
        self._lock = threading.Lock()
        self._session: SparkSession | None = None
        self._timer: threading.Timer | None = None
        self._stopped = ""

    def batches(self, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        rows = self._run(self, self._plan, self._segments)
        columns = [_cast(rows.column(number), field.type) for number, field in enumerate(schema)]
        yield from pa.table(columns, schema=schema).to_batches(_BATCH_ROWS)

    def cancel(self) -> None:
        self._stop("cancelled")

    def began(self, session: SparkSession, seconds: float) -> None:
        """In the thread whose jobs these will be."""
        with self._lock:
            if self._stopped:
                raise cancelled()
            self._session = session
            self._wait(seconds, "late")
        session.sparkContext.setJobGroup(self._group, "query", interruptOnCancel=True)

    def ended(self) -> None:
        with self._lock:
            if self._timer:
                self._timer.cancel()
            self._session = None

    def explained(self, error: Exception, limits: AskLimits) -> LakerunnerError:
        if self._stopped:
            late = self._stopped == "late"
            return TooLong(f"stopped after {limits.seconds:g} s: limit query_seconds") if late else cancelled()
        return explained(error, limits.memory)

    def _stop(self, why: str) -> None:
        with self._lock:
            self._stopped = self._stopped or why
            if self._session is not None:
                # PySpark has only the call that misses the jobs which are about to begin. This one misses the stages of
                # a query that is still planned, which begin on their own: it is made again until the query has ended.
                self._session.sparkContext._jsc.sc().cancelJobGroupAndFutureJobs(self._group)
                self._wait(_AGAIN_SECONDS, why)

    def _wait(self, seconds: float, why: str) -> None:
        """Before it is stopped, unless it ends."""
        if self._timer:
            self._timer.cancel()
        self._timer = threading.Timer(seconds, self._stop, (why,))
        self._timer.daemon = True
        self._timer.start()


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


def explained(error: Exception, memory: str) -> LakerunnerError:
    """What Spark says, without the frames of its code. Our own tasks say what they met."""
    if _OUTGROWN.search(str(error)):
        return TooLarge(
            "the query needs more than the memory of a Python worker of Spark "
            f"(query_spark_memory {memory}): select less, or raise it"
        )
    if isinstance(error, Py4JJavaError):
        return Crashed(f"Spark did not finish the query: {str(error.java_exception).partition(chr(10))[0]}")
    if not isinstance(error, PySparkException):
        return Unavailable(f"Spark's Java process has ended, or does not answer: {type(error).__name__}: {error}")
    message = str(error)
    told = told_error(message)
    if told:
        return told
    if "spark.driver.maxResultSize" in message:
        return TooLarge("the answer is larger than spark.driver.maxResultSize: select less")
    first = message.strip().partition("\n")[0]
    if "Job aborted due to stage failure" in first and "[" not in first:
        return Crashed(f"Spark did not finish the query: {first}")
    return UserError(f"Spark cannot run the query: {_CONDITION.sub('', first)}")


def _cast(column: pa.ChunkedArray, kind: pa.DataType) -> pa.ChunkedArray:
    """A column of Spark's, in the type that DuckDB gives it; nanoseconds were carried as whole numbers."""
    return column if column.type == kind else column.cast(kind)
