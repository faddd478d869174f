"""The processes that run queries in Spark, as the API sees them: started, connected to, watched, killed.

What always holds: a process runs one query at a time, so that what a query does to it, to its heap or to its slots, it
does to no other query. It is started by a query that finds none idle, and ends after some idle time. Its environment
has no secret of ours; what it must know of the object store it gets over a socket.
"""

from __future__ import annotations

import os
import pickle
import re
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace

from lakerunner.model.errors import Crashed, LakerunnerError, TooLarge, Unavailable
from lakerunner.model.frames import BrokenStream, receive_frame
from lakerunner.objects.open import StoreAddress
from lakerunner.pipeline.ask import frames
from lakerunner.pipeline.ask.run import AskLimits, TaskFunction
from lakerunner.pipeline.daemon import MEMORY_VARIABLE
from lakerunner.pipeline.jvm import spark_variables
from lakerunner.pipeline.session import HEAP_EXHAUSTED, SparkSettings

_CLOSE_SECONDS = 20.0
_IDLE_SECONDS = 900.0
_MODULE = "lakerunner.pipeline.ask.serve"
# Rows pass through this JVM, so it has the optimizing compiler and a parallel collector. It gives up when nine tenths
# of its time go into freeing less than a twentieth of its heap: a query that grows without end is over in seconds.
_QUERY_JVM = "-XX:+UseParallelGC -XX:GCTimeLimit=90 -XX:GCHeapFreeLimit=5 -XX:+ExitOnOutOfMemoryError"
_MEMORY = re.compile(r"(\d+)([kmgt]?)b?")
_LOCAL = re.compile(r"local(?:\[([^,\]]+)\])?")
_CORES = re.compile(r"local(?:\[([^,\]]+)(?:,\d+)?\])?|local-cluster\[(\d+),(\d+),\d+\]")
# Of a cluster whose size the settings do not state. Spark's defaultParallelism comes too late: it is 2 until executors
# have registered, some time after the session has opened. With 16 slots a leaf has as many units under way as it may
# have at all (query/gather.py).
_UNKNOWN_SLOTS = 16
_SHIFTS = {"k": 10, "m": 20, "g": 30, "t": 40}


@dataclass(frozen=True)
class ServeSettings:
    """`spark` states where queries run, `address` where Spark SQL reads its segments; `function` is what tasks run."""

    spark: SparkSettings
    address: StoreAddress
    limits: AskLimits
    function: TaskFunction | None = None


def for_queries(settings: SparkSettings, daemon: str) -> SparkSettings:
    """Return the settings of a session with what one for queries needs. A Python worker may take as much as the heap,
    half of which is for the answer. `daemon` is the module that Python workers are forks of."""
    memory = heap_bytes(settings.driver_memory)
    conf = {
        "spark.driver.maxResultSize": f"{memory // 2}b",
        f"spark.executorEnv.{MEMORY_VARIABLE}": str(memory),
        **dict(settings.conf),
    }
    return replace(
        settings,
        master=_with_second_try(settings.master),
        conf=tuple(sorted(conf.items())),
        java_options=_QUERY_JVM,
        daemon=daemon,
        own_group=False,  # so that the process and its JVM can be killed as one
    )


def _with_second_try(master: str) -> str:
    """Return a local master that runs a failed task once more, as clusters do.

    A Python worker that is being ended after a LIMIT was reached can still be given the next query's task.
    """
    found = _LOCAL.fullmatch(master)
    return f"local[{found[1] or 1},2]" if found else master


def slots(settings: SparkSettings) -> int:
    """Return how many tasks run at once, as far as the settings state it."""
    conf = dict(settings.conf)
    if found := _CORES.fullmatch(settings.master):
        if found[2]:
            return int(found[2]) * int(found[3])
        return (os.cpu_count() or 1) if found[1] == "*" else int(found[1] or 1)
    if "spark.cores.max" in conf:
        return int(conf["spark.cores.max"])
    if "spark.executor.instances" in conf:
        return int(conf["spark.executor.instances"]) * int(conf.get("spark.executor.cores", "1"))
    return _UNKNOWN_SLOTS


def heap_bytes(memory: str) -> int:
    """Return the bytes that Spark reads in a text like 1g; a number alone counts MiB."""
    found = _MEMORY.fullmatch(memory.strip().lower())
    if not found:
        raise Unavailable(
            f"cannot start Spark for queries: query_spark_memory {memory!r} is not a size such as 1g or 640m"
        )
    return int(found[1]) << _SHIFTS[found[2] or "m"]


class Child:
    """One process. `ready` is set when it accepts queries, and when it has ended."""

    def __init__(self, popen: subprocess.Popen[bytes], control: socket.socket, memory: str) -> None:
        self.popen = popen
        self.ready = threading.Event()
        self.was_ready = self.is_closed = self._is_killed = False
        self._control = control
        self._memory = memory
        self._ended = threading.Event()
        self._reason: LakerunnerError = Crashed(
            "Spark for queries ended while the query ran (killed, or out of memory): try again"
        )

    @property
    def is_running(self) -> bool:
        return not (self._is_killed or self._ended.is_set()) and self.popen.poll() is None

    def connect(self) -> socket.socket:
        """Open a connection for one request. OSError if the process has just ended."""
        ours, theirs = socket.socketpair()
        with theirs:
            try:
                socket.send_fds(self._control, [b"Q"], [theirs.fileno()])
            except OSError:
                ours.close()
                raise
        return ours

    def kill(self) -> None:
        """End it, its JVM and its workers at once."""
        self._is_killed = True
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self.popen.pid, signal.SIGKILL)

    def close(self) -> None:
        """End it in order, or kill it if that takes too long."""
        self.is_closed = True
        with suppress(OSError):
            self._control.shutdown(socket.SHUT_WR)
        if not self._ended.wait(_CLOSE_SECONDS):
            self.kill()

    def failure(self, seconds: float) -> LakerunnerError:
        """Return why it ended, for the query that was in it. It is killed if it has not ended in time."""
        if not self._ended.wait(seconds):
            self.kill()
            self._ended.wait(seconds)
        return self._reason

    def watch(self) -> None:
        """Note what it reports about itself, until it has ended."""
        with suppress(OSError, BrokenStream):
            while True:
                self._note_frame(*receive_frame(self._control))
        self.kill()  # it does not listen any more; and if it was killed alone, its JVM is left
        self.popen.wait()
        self._control.close()
        self._ended.set()
        self.ready.set()

    def _note_frame(self, kind: bytes, content: bytearray) -> None:
        if kind == frames.READY:
            self.was_ready = True
            self.ready.set()
        elif kind == frames.FAILURE:
            self._reason = Unavailable(f"cannot start Spark for queries: {frames.read_failure(content)}")
        elif kind == frames.ENDED:
            self._reason = self._end_reason(frames.read_object(content).get("code"))

    def _end_reason(self, code: object) -> LakerunnerError:
        if code != HEAP_EXHAUSTED:
            return Crashed(f"the Java process of Spark for queries ended with code {code}: try again")
        return TooLarge(
            f"the query needs more than the heap of Spark (query_spark_memory {self._memory}): select less, or raise it"
        )


class QueryProcesses:
    """Safe to use from many threads. `settings` are read when one starts; `report` is called with why one ended."""

    def __init__(
        self, settings: Callable[[], ServeSettings], environment: Mapping[str, str], report: Callable[[str], None]
    ) -> None:
        self._settings = settings
        self._environment = spark_variables(environment)
        self._report = report
        self._lock = threading.Lock()
        self._idle: dict[Child, threading.Timer] = {}
        self._all: set[Child] = set()
        self._closed = False

    def connect(self) -> tuple[Child, socket.socket]:
        """Open a connection for one query, to an idle process or a new one. Return at once, also while it starts."""
        with self._lock:
            while self._idle:
                child, timer = self._idle.popitem()  # the last one in, so that those to spare go
                timer.cancel()
                with suppress(OSError):
                    if child.is_running:
                        return child, child.connect()
            child = self._start()
            try:
                return child, child.connect()
            except OSError as error:
                raise Unavailable(f"cannot start Spark for queries: {error}") from error

    def put_back(self, child: Child) -> None:
        """Accept a process whose query has ended; it may have ended too."""
        with self._lock:
            if child.is_running:
                self._rest(child)

    def close(self) -> None:
        with self._lock:
            self._closed = True
            children = set(self._all)
        for child in children:
            child.close()

    def _rest(self, child: Child) -> None:
        timer = threading.Timer(_IDLE_SECONDS, self._end_idle, (child,))
        timer.daemon = True
        self._idle[child] = timer
        timer.start()

    def _end_idle(self, child: Child) -> None:
        with self._lock:
            found = self._idle.pop(child, None)
        if found:
            child.close()

    def _start(self) -> Child:
        if self._closed:
            raise Unavailable("this process stops")
        settings = self._settings()
        work = settings.spark.work_directory
        work.mkdir(parents=True, exist_ok=True)
        ours, theirs = socket.socketpair()
        with theirs, (work / "serve.out").open("ab") as output:
            popen = subprocess.Popen(
                [sys.executable, "-m", _MODULE, str(theirs.fileno())],
                env=self._environment,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                pass_fds=(theirs.fileno(),),
                start_new_session=True,  # it and its JVM are one group, which can be killed as one
            )
        frames.send(ours, frames.REQUEST, pickle.dumps(settings))
        child = Child(popen, ours, settings.spark.driver_memory)
        self._all.add(child)
        threading.Thread(target=self._watch, args=(child,), name="query-spark", daemon=True).start()
        return child

    def _watch(self, child: Child) -> None:
        child.watch()
        with self._lock:
            self._all.discard(child)
            timer = self._idle.pop(child, None)
            if timer:
                timer.cancel()
            if self._closed or child.is_closed:
                return
            self._report(str(child.failure(0.0)))
            # Start another, so that the next query does not wait for it. But not in place of one that ended by itself,
            # before its first query or between two: processes would be started for ever.
            if timer is None and child.was_ready:
                with suppress(LakerunnerError, OSError):
                    self._rest(self._start())
