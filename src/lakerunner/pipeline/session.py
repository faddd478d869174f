"""The one Spark session of a process.

Comes in: where Spark runs (`local[*]`, `local-cluster[..]`, `spark://`, `k8s://`, `yarn`), on which Java, and a
directory for what it writes. Goes out: a session, until `close_session` ends it together with its JVM.

What always holds: a session with a local master listens on loopback only. Spark's output goes to `spark.log` and
`spark.out` in the work directory, not to our terminal. The JVM ends with this process, however that ends: it holds a
pipe to us and exits when the pipe closes, and its Python workers exit with it. None of them has a variable of our
environment that jvm.py does not list. A JVM whose heap is exhausted ends at once, with exit code HEAP_EXHAUSTED,
instead of thrashing. Several sessions may share a work directory; the next one removes what a killed one left there.
"""

from __future__ import annotations

import fcntl
import mmap
import os
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import pyspark
from py4j.protocol import Py4JError, Py4JJavaError  # type: ignore[import-untyped]
from pyspark import SparkConf, SparkContext
from pyspark.errors import PySparkRuntimeError
from pyspark.java_gateway import launch_gateway
from pyspark.sql import SparkSession

from lakerunner.model.errors import Unavailable, UserError
from lakerunner.pipeline.jvm import spark_variables

HEAP_EXHAUSTED = 3  # the exit code of a JVM with ExitOnOutOfMemoryError
# Spark replaces ${env:NAME} and ${system:NAME} in the text of a statement, also inside a literal.
SUBSTITUTE = "spark.sql.variable.substitute"
_LOOPBACK = "127.0.0.1"
_CLOSE_SECONDS = 15.0
_JAVA_OPTIONS = "spark.driver.extraJavaOptions"

# Rows of the pipeline never pass through the JVM, so the optimizing compiler and a parallel collector only take cores
# from the Python workers: without them a session starts, and a small job ends, a fifth sooner.
LEAN_JVM = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1 -XX:+ExitOnOutOfMemoryError"

# Gives the session to run one job on. It may be another one next time, so callers must not keep it.
Sessions = Callable[[], AbstractContextManager[SparkSession]]

_LOG4J = """\
rootLogger.level = warn
rootLogger.appenderRef.file.ref = file
appender.file.type = RollingFile
appender.file.name = file
appender.file.fileName = {directory}/spark.log
appender.file.filePattern = {directory}/spark.%i.log
appender.file.layout.type = PatternLayout
appender.file.layout.pattern = %d{{yyyy-MM-dd HH:mm:ss.SSS}} %p %c{{1}}: %m%n%ex
appender.file.policies.type = SizeBasedTriggeringPolicy
appender.file.policies.size = 10MB
appender.file.strategy.type = DefaultRolloverStrategy
appender.file.strategy.max = 1
logger.native.name = org.apache.hadoop.util.NativeCodeLoader
logger.native.level = error
"""


@dataclass(frozen=True)
class SparkSettings:
    """`conf` wins over our own choices. `driver_memory` is the heap of the JVM beside this process. `daemon` is the
    module that Python workers are forks of. `own_group`: a signal to our process group does not reach the JVM."""

    master: str
    conf: tuple[tuple[str, str], ...]
    driver_memory: str
    java_home: Path
    work_directory: Path
    java_options: str = LEAN_JVM
    daemon: str = "lakerunner.pipeline.daemon"
    own_group: bool = True

    def __post_init__(self) -> None:
        if dict(self.conf).get(SUBSTITUTE, "false").strip().lower() != "false":
            raise UserError(
                f"setting spark_conf: {SUBSTITUTE} must be false, otherwise a query could read our environment"
            )

    @property
    def is_local(self) -> bool:
        """Whether everything runs on this machine."""
        return self.master.startswith("local")

    @property
    def is_local_cluster(self) -> bool:
        """Whether executors are separate processes on this machine."""
        return self.master.startswith("local-cluster")


class JvmStart:
    """The process of a starting JVM, so that another thread can end it before PySpark knows it."""

    def __init__(self) -> None:
        self._pid = mmap.mmap(-1, 8)  # shared with the process, which writes its id here before it becomes Java

    def note(self) -> None:
        """Write the process id; called in the new process."""
        self._pid[:] = os.getpid().to_bytes(8)

    def end(self) -> None:
        """Kill the process and its children; it must have a process group of its own. Does nothing if it is not there
        yet, or has ended."""
        if pid := int.from_bytes(self._pid[:]):
            with suppress(ProcessLookupError):
                os.killpg(pid, signal.SIGKILL)


def open_session(settings: SparkSettings, app_name: str, start: JvmStart | None = None) -> SparkSession:
    """Start a JVM and a session in it; one at a time per process. UserError if Java does not start Spark, Unavailable
    if the master refuses us."""
    if SparkContext._gateway is not None:
        raise UserError("this process has a Spark session already: close it first")
    directory = settings.work_directory.resolve()
    scratch, lock = _make_scratch(directory)
    conf = SparkConf(loadDefaults=False)
    conf.setAll(_configuration(settings, app_name, scratch))
    os.environ.update(_environment(settings, scratch, dict(conf.getAll())))
    try:
        # In the main thread a SparkContext would take over Ctrl-C, and print traces of the calls that it interrupts.
        # The process decides what Ctrl-C does.
        with ThreadPoolExecutor(1, "spark-open") as aside:
            gateway = _launch(settings, conf, scratch, (lock, start or JvmStart()))
            context = aside.submit(SparkContext, conf=conf, gateway=gateway).result()
        # It would print a trace on our terminal when the JVM is gone; we report that ourselves.
        context._accumulatorServer.handle_error = lambda *_: None  # type: ignore[method-assign]
        return SparkSession(context)
    except Py4JJavaError as error:
        reason = str(error.java_exception.getMessage()).partition("\n")[0]
        _end_jvm(_CLOSE_SECONDS)
        raise Unavailable(f"Spark master {settings.master!r} refuses us: {reason}") from None
    except BaseException:
        _end_jvm(_CLOSE_SECONDS)
        shutil.rmtree(scratch, ignore_errors=True)
        raise
    finally:
        os.close(lock)


def is_alive(session: SparkSession) -> bool:
    """Return whether the session can run jobs: its JVM lives, and has not stopped it."""
    gateway, context = SparkContext._gateway, session.sparkContext
    if gateway is None or gateway.proc.poll() is not None or context._jsc is None:
        return False
    try:
        return not context._jsc.sc().isStopped()
    except (Py4JError, OSError):
        return False


def exit_code(seconds: float) -> int | None:
    """Return the exit code of this process's JVM if it ends within this time, or has ended."""
    gateway = SparkContext._gateway
    if gateway is None:
        return None
    with suppress(subprocess.TimeoutExpired):
        return int(gateway.proc.wait(seconds))
    return None


def close_session(session: SparkSession, seconds: float = _CLOSE_SECONDS) -> None:
    """End the session, its jobs, its JVM and its workers. They are killed if they do not end within twice `seconds`."""
    stopping = threading.Thread(target=_stop, args=(session,), daemon=True)
    stopping.start()
    stopping.join(seconds)
    _end_jvm(seconds)


def _stop(session: SparkSession) -> None:
    context = session.sparkContext
    if SparkContext._gateway is None or SparkContext._gateway.proc.poll() is not None:
        context._jsc = None  # calling a JVM that is gone would print a warning on our terminal
        context.stop()
        return
    with suppress(Py4JError, OSError):  # it ended just now
        session.stop()


def _end_jvm(seconds: float) -> None:
    gateway = SparkContext._gateway
    # So that this process can open another session, even if the old one did not stop in time.
    SparkContext._gateway = SparkContext._jvm = SparkContext._active_spark_context = None
    SparkSession._instantiatedSession = SparkSession._activeSession = None
    if gateway is None:
        return
    process: subprocess.Popen[bytes] = gateway.proc
    with suppress(Py4JError, OSError):
        gateway.shutdown()
    if process.stdin is not None:
        process.stdin.close()
    try:
        process.wait(seconds)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    shutil.rmtree(gateway.scratch, ignore_errors=True)


class _StartOptions(dict[str, Any]):
    """Options of the JVM's Popen. pyspark sets `env` among them to the whole environment of this process, whatever it
    was before, so forbidden variables are removed as it is set; and `preexec_fn`, to which `start` adds a note."""

    def __init__(self, start: JvmStart, **options: Any) -> None:
        super().__init__(options)
        self._start = start

    def __setitem__(self, name: str, value: Any) -> None:
        if name == "env":
            value = spark_variables(value)
        elif name == "preexec_fn":
            value = partial(_call_each, (self._start.note, value))
        super().__setitem__(name, value)


def _call_each(functions: tuple[Callable[[], None], ...]) -> None:
    for function in functions:
        function()


def _launch(settings: SparkSettings, conf: SparkConf, scratch: Path, inherits: tuple[int, JvmStart]) -> Any:
    """Start the JVM. It inherits the lock on its scratch directory, which is therefore held as long as it lives."""
    output = scratch.parent / "spark.out"
    lock, start = inherits
    with output.open("wb") as out:
        options = _StartOptions(start, stdout=out, stderr=out, start_new_session=settings.own_group, pass_fds=(lock,))
        try:
            gateway = launch_gateway(conf, options)  # type: ignore[no-untyped-call]
        except PySparkRuntimeError:
            raise UserError(
                f"cannot start Spark with master {conf.get('spark.master')!r}: {_read_errors(output)}"
            ) from None
    gateway.scratch = scratch  # beside pyspark's own gateway.proc: for _end_jvm
    return gateway


def _read_errors(output: Path) -> str:
    """Return Java's output without the frames of its own code."""
    lines = [line.strip() for line in output.read_text(errors="replace").splitlines()]
    errors = [line for line in lines if line and not line.startswith(("at ", "WARNING: "))]
    return " ".join(errors)[-500:] or "no output"


def _configuration(settings: SparkSettings, app_name: str, scratch: Path) -> list[tuple[str, str]]:
    directory = scratch.parent
    log4j = scratch / "log4j2.properties"
    log4j.write_text(_LOG4J.format(directory=directory))
    java_options = f'{settings.java_options} "-Dlog4j2.configurationFile={log4j.as_uri()}" "-Djava.io.tmpdir={scratch}"'
    ours = {
        "spark.master": settings.master,
        "spark.app.name": app_name,
        "spark.driver.memory": settings.driver_memory,
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.warehouse.dir": (directory / "warehouse").as_uri(),
        # lz4 would be pure Java here, and sixty times slower.
        "spark.sql.execution.arrow.compression.codec": "none",
        "spark.python.daemon.module": settings.daemon,
        "spark.python.worker.faulthandler.enabled": "true",  # a crashing worker prints its stack
        # A task has one core: a library that starts a thread per core would only take those of other tasks.
        "spark.executorEnv.OMP_NUM_THREADS": "1",
    }
    if settings.is_local:
        ours |= {"spark.driver.host": _LOOPBACK, "spark.driver.bindAddress": _LOOPBACK}
    theirs = dict(settings.conf)
    theirs[SUBSTITUTE] = "false"
    theirs[_JAVA_OPTIONS] = f"{java_options} {theirs.get(_JAVA_OPTIONS, '')}".strip()
    return list((ours | theirs).items())


def _environment(settings: SparkSettings, scratch: Path, conf: dict[str, str]) -> dict[str, str]:
    """Return what Spark's launcher reads from the environment and nowhere else."""
    spark_home = Path(pyspark.__file__).parent
    if settings.is_local_cluster:
        spark_home = _link_spark_home(spark_home, scratch)
    environment = {
        "JAVA_HOME": str(settings.java_home),
        "SPARK_HOME": str(spark_home),
        "SPARK_LOCAL_DIRS": str(scratch),
        "PYSPARK_PYTHON": conf.get("spark.pyspark.python", sys.executable),
    }
    return environment | {"SPARK_LOCAL_IP": _LOOPBACK} if settings.is_local else environment


def _link_spark_home(spark_home: Path, scratch: Path) -> Path:
    """Make a SPARK_HOME of links: the workers of a local cluster write beside `bin` and `jars`, into `work`."""
    home = scratch / "home"
    home.mkdir()
    for entry in ("bin", "jars", "python", "RELEASE"):
        if (spark_home / entry).exists():
            (home / entry).symlink_to(spark_home / entry)
    return home


def _make_scratch(directory: Path) -> tuple[Path, int]:
    """Make a directory for this session's files; return it and the descriptor that locks it. Directories of sessions
    that ended without tidying up, whose lock is free, are removed."""
    directory.mkdir(parents=True, exist_ok=True)
    with (directory / "lock").open("w") as guard:
        fcntl.flock(guard, fcntl.LOCK_EX)  # held only while a session starts or old ones are removed
        for old in directory.glob("session-*"):
            _remove_if_abandoned(old)
        scratch = Path(mkdtemp(prefix="session-", dir=directory))
        lock = os.open(scratch / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        fcntl.flock(lock, fcntl.LOCK_EX)
    return scratch, lock


def _remove_if_abandoned(scratch: Path) -> None:
    try:
        lock = os.open(scratch / "lock", os.O_RDWR | os.O_CLOEXEC)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        finally:
            os.close(lock)
    except BlockingIOError:
        return
    except FileNotFoundError:
        pass
    shutil.rmtree(scratch, ignore_errors=True)
