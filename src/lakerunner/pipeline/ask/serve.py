"""The process that runs queries in Spark: `python -m lakerunner.pipeline.ask.serve FD`, started by process.py.

Comes in, over the socket FD: first what it needs to know (ServeSettings, pickled by the API), then one end of a socket
for each request: a query that Spark SQL runs whole, a task, or whether nothing runs. Goes out over that socket: rows or
the bytes of the task, or an error (frames.py). A request is cancelled by closing the other end. Over FD itself it says
that it is ready, and why it ends. Requests of one query run side by side; two queries never do (lease.py).

What always holds: it lives as long as its JVM, no longer, and ends with the process that started it, however that
ends. It runs at a low priority, so that ingest beside it has the cores it needs, and the kernel ends it first where
memory is short.
"""

from __future__ import annotations

import json
import os
import pickle
import signal
import socket
import sys
import threading
from contextlib import suppress
from pathlib import Path

from pyspark.sql import SparkSession

from lakerunner.model.errors import Crashed, LakerunnerError, Unavailable
from lakerunner.model.frames import BrokenStream, receive_frame
from lakerunner.pipeline.ask import frames
from lakerunner.pipeline.ask.process import ServeSettings
from lakerunner.pipeline.ask.run import JobGroup, SparkQueries
from lakerunner.pipeline.session import close_session, exit_code, open_session

_NICENESS = 10  # a process beside it that has none gets ten times its share of a busy core
_OUT_OF_MEMORY_SCORE = "500"  # of 1000: the kernel's first choice
_CLOSE_SECONDS = 5.0
_LOOK_SECONDS = 0.2
_GONE_SECONDS = 2.0  # for a JVM that broke off a call to become a process that has ended


class Server:
    """One JVM, and a thread for each request to it."""

    def __init__(self, control: socket.socket) -> None:
        self._control = control
        self._opened = threading.Event()
        self._leaving = threading.Event()
        self._session: SparkSession | None = None
        self._queries: SparkQueries | None = None
        self._running = 0
        self._ended = threading.Condition()

    def run(self) -> None:
        """Serve until the JVM or the starting process ends."""
        try:
            _, content = receive_frame(self._control)
        except BrokenStream:
            return
        settings: ServeSettings = pickle.loads(content)  # noqa: S301 - from the API, which started us
        threading.Thread(target=self._take_queries, daemon=True).start()
        try:
            session = open_session(settings.spark, "lakerunner-queries")
        except LakerunnerError as error:
            frames.send(self._control, frames.FAILURE, frames.write_failure(error))
            return
        self._session = session
        self._queries = SparkQueries(session, settings.address, settings.limits, settings.function)
        frames.send(self._control, frames.READY)
        self._opened.set()
        while (code := exit_code(0.0)) is None:
            self._leaving.wait(_LOOK_SECONDS)  # waiting for a process with a limit would look twenty times a second
        frames.send(self._control, frames.ENDED, json.dumps({"code": code}).encode())
        close_session(session, _CLOSE_SECONDS)

    def _take_queries(self) -> None:
        while True:
            with suppress(OSError):
                told, descriptors, _, _ = socket.recv_fds(self._control, 1, 1)
                for descriptor in descriptors:
                    connection = socket.socket(fileno=descriptor)
                    threading.Thread(target=self._answer, args=(connection,), daemon=True).start()
                if told:
                    continue
            self._leave()

    def _leave(self) -> None:
        """End, because the API is gone or has closed its end. What is not tidied up in time is killed with us."""
        ending = threading.Timer(2 * _CLOSE_SECONDS, os.killpg, (0, signal.SIGKILL))
        ending.daemon = True
        ending.start()
        if self._session is not None:
            close_session(self._session, _CLOSE_SECONDS)
        os.killpg(0, signal.SIGKILL)

    def _answer(self, connection: socket.socket) -> None:
        try:
            self._serve(connection)
        except LakerunnerError as error:
            # If the JVM is gone, the control socket reports it once, for all requests that ended with it.
            if exit_code(_GONE_SECONDS if isinstance(error, Unavailable) else 0.0) is None:
                _send_failure(connection, error)
        except (OSError, BrokenStream):
            pass  # the API has left
        except Exception as error:  # noqa: BLE001 - a bug: the API reports it
            _send_failure(connection, Crashed(f"Spark did not finish the query: {type(error).__name__}: {error}"))
        finally:
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)  # wakes the thread that waits for a cancel
            connection.close()

    def _serve(self, connection: socket.socket) -> None:
        kind, content = receive_frame(connection)
        self._opened.wait()
        if self._queries is None:
            return
        if kind == frames.IDLE:
            with self._ended:
                self._ended.wait_for(lambda: self._running == 0)
        else:
            self._run(self._queries, connection, kind, content)
        frames.send(connection, frames.END)

    def _run(self, queries: SparkQueries, connection: socket.socket, kind: bytes, content: bytearray) -> None:
        group = queries.group()
        with self._ended:
            self._running += 1
        threading.Thread(target=_cancel_at_end, args=(connection, group), daemon=True).start()
        try:
            if kind == frames.TASK:
                for chunk in queries.task(group, bytes(content)):
                    frames.send(connection, frames.ROWS, chunk)
                return
            plan, segments, schema = pickle.loads(content)  # noqa: S301 - from the API, which started us
            for batch in queries.sql(group, plan, segments, schema):
                frames.send(connection, frames.ROWS, frames.write_rows(batch))
        finally:
            with self._ended:
                self._running -= 1
                self._ended.notify_all()


def _cancel_at_end(connection: socket.socket, group: JobGroup) -> None:
    with suppress(OSError):
        connection.recv(1)  # nothing is ever sent after the request
    group.cancel()


def _send_failure(connection: socket.socket, error: LakerunnerError) -> None:
    with suppress(OSError):
        frames.send(connection, frames.FAILURE, frames.write_failure(error))


def main() -> None:
    os.nice(_NICENESS)
    with suppress(OSError):  # not Linux
        Path("/proc/self/oom_score_adj").write_text(_OUT_OF_MEMORY_SCORE)
    control = socket.socket(fileno=int(sys.argv[1]))
    Server(control).run()


if __name__ == "__main__":
    main()
