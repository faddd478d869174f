"""Follow new lines for all tails of a process: one thread looks for new segments, a few threads read them.

Comes in: tails. Goes out: entries in the queue of each tail. What always holds: a tail reads each segment that ingest
commits once, and never one of another organization; a client that does not read holds up nobody, because its entries
are dropped; a delivery that came twice is sent once if both came within the last DELIVERIES rows.

While the index or the workers are away, tails wait and go on later.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass, field, replace
from itertools import islice
from sys import getsizeof
from threading import Condition, Lock, Thread
from time import monotonic
from typing import Any, Protocol
from uuid import UUID

from lakerunner.api.errors import error_body
from lakerunner.api.loki.known_rules import KnownRules
from lakerunner.api.loki.log_json import LogEntry
from lakerunner.api.tail.tail_queue import TailQueue
from lakerunner.index.commits import Beginning
from lakerunner.logql.log_plan import LogqlQuestion, compile_logql
from lakerunner.model.errors import LakerunnerError, Unavailable
from lakerunner.model.segment import Segment
from lakerunner.model.time import TimeRange
from lakerunner.query.engine import Engine
from lakerunner.query.options import Options

# Between two looks at the index, which take about 1 ms of CPU each. Reading the lines comes on top, and a client should
# have them a second after the commit (bench/tail.py).
SECONDS = 0.5
DELIVERIES = 10_000  # rows of deliveries that a tail remembers
PENDING_MAX = 1000  # segments that wait to be read for one tail
READERS = 4
_logger = logging.getLogger("lakerunner.api.tail")


class CommitSource(Protocol):
    """The commits of log segments (`index/commits.py`)."""

    def start(self) -> int: ...

    def reset(self) -> None: ...

    def begin(self, organization: UUID, time: TimeRange, horizon: int) -> Beginning: ...

    def poll(self, organizations: Collection[UUID]) -> list[Segment]: ...


@dataclass(eq=False)
class Tail:
    """One client's tail. `question` is its log query from its start on, `limit` the number of lines that it gets of
    those that are there. `fail` is called, from any thread, with the reason for which it ends. `unread` are segments
    that could not be read to their end: `rows` of their answer were sent."""

    organization: UUID
    question: LogqlQuestion
    limit: int
    delay_seconds: float
    queue: TailQueue
    fail: Callable[[str], None]
    begun: bool = False
    reading: bool = False
    closed: bool = False
    pending: list[Segment] = field(default_factory=list)
    due: float = 0.0
    unread: tuple[Segment, ...] = ()
    rows: int = 0
    _deliveries: dict[tuple[int, int], None] = field(default_factory=dict)

    @property
    def time(self) -> TimeRange:
        return TimeRange(self.question.start_ns, self.question.end_ns)

    def offer(self, segments: Iterable[Segment], now: float) -> None:
        """Let it read these segments once `delay_seconds` have passed."""
        own = [one for one in segments if one.organization == self.organization and one.time.overlaps(self.time)]
        if own and not self.pending:
            self.due = now + self.delay_seconds
        self.pending += own
        if len(self.pending) > PENDING_MAX:
            self.end(f"the tail is more than {PENDING_MAX} segments behind: use a more specific selector")

    def is_due(self, now: float) -> bool:
        return (
            self.begun
            and not self.reading
            and not self.closed
            and (bool(self.unread) or (bool(self.pending) and now >= self.due))
        )

    def put(self, row: dict[str, Any]) -> bool:
        """Queue the line of a row, unless it was delivered before. Return False once further ones are of no use."""
        delivery = row.pop("delivery"), row.pop("delivery_row")
        if delivery[0] is not None:
            if delivery in self._deliveries:
                return True
            self._deliveries[delivery] = None
            if len(self._deliveries) > DELIVERIES:
                del self._deliveries[next(iter(self._deliveries))]
        return not self.closed and self.queue.put(LogEntry(**row))

    def end(self, reason: str) -> None:
        if not self.closed:
            self.closed = True
            self.pending.clear()
            self.fail(reason)


class LineFollower:
    """Safe to use from many threads. Its thread runs while there are tails."""

    def __init__(
        self,
        engine: Engine,
        rules: KnownRules,
        commits: CommitSource,
        now_ns: Callable[[], int],
        seconds: float = SECONDS,
    ) -> None:
        self._engine = engine
        self._rules = rules
        self._commits = commits
        self._now_ns = now_ns
        self._seconds = seconds
        self._polling = Lock()  # guards the position in the commits
        self._state = Condition()
        self._tails: set[Tail] = set()
        self._thread: Thread | None = None
        self._readers = ThreadPoolExecutor(READERS, thread_name_prefix="tail")
        self._away = ""

    @property
    def tails(self) -> list[Tail]:
        with self._state:
            return list(self._tails)

    def join(self, tail: Tail) -> None:
        """Queue the last lines of the tail, and follow new ones from then on. Blocks on the index and on workers."""
        with self._polling:
            with self._state:
                if not self._tails:
                    self._commits.reset()
            horizon = self._commits.start()
            with self._state:
                if tail.closed:  # the client has left already
                    return
                self._tails.add(tail)
                if self._thread is None:
                    self._thread = Thread(target=self._run, name="tails", daemon=True)
                    self._thread.start()
        try:
            beginning = self._commits.begin(tail.organization, tail.time, horizon)
            for row in reversed(self._last_rows(tail, beginning.segments)):
                tail.put(row)
            tail.queue.wake()
        except BaseException:
            self.leave(tail)
            raise
        with self._state:
            # What was committed before that moment is in the segments of `beginning`, merged or not.
            tail.pending = [one for one in tail.pending if one.id not in beginning.known]
            tail.begun = True

    def leave(self, tail: Tail) -> None:
        with self._state:
            tail.closed = True
            self._tails.discard(tail)
            self._state.notify_all()

    def close(self) -> None:
        """End all tails and threads."""
        with self._state:
            thread, tails, self._tails = self._thread, list(self._tails), set()
            self._state.notify_all()
        for tail in tails:
            tail.end("the server is stopping: connect again")
        if thread is not None:
            thread.join()
        self._readers.shutdown()

    def _run(self) -> None:
        while True:
            with self._state:
                if not self._tails:
                    self._thread = None
                    return
            self._poll()
            with self._state:
                self._state.wait_for(lambda: not self._tails, self._seconds)

    def _poll(self) -> None:
        with self._state:
            organizations = {tail.organization for tail in self._tails}
        try:
            with self._polling:
                segments = self._commits.poll(organizations)
            self._away = ""
        except Exception as error:
            if self._away != str(error):
                self._away = str(error)
                expected = isinstance(error, Unavailable)
                _logger.warning("tails wait for the index: %s", error, exc_info=None if expected else error)
            segments = []
        now = monotonic()
        with self._state:
            for tail in self._tails:
                tail.offer(segments, now)
            due = [tail for tail in self._tails if tail.is_due(now)]
            for tail in due:
                tail.reading = True
        for tail in due:
            self._readers.submit(self._read, tail)

    def _read(self, tail: Tail) -> None:
        """Queue the lines of the segments that wait for the tail."""
        with self._state:
            if not tail.unread:
                tail.unread, tail.pending, tail.rows = tuple(tail.pending), [], 0
        try:
            # The same segments give the same rows in the same order: those that were sent before are left out.
            for row in islice(self._rows(tail, tail.question, tail.unread), tail.rows, None):
                tail.rows += 1
                if not tail.put(row):
                    break
                if tail.rows % tail.queue.most.frame_entries == 0:
                    tail.queue.wake()
            tail.unread = ()
        except Unavailable as error:
            _logger.info("a tail waits for workers: %s", error)
        except LakerunnerError as error:
            tail.end(str(error))
        except Exception as error:
            _logger.exception("tail failed")
            tail.end(str(error_body(error)["message"]))
        finally:
            tail.queue.wake()
            with self._state:
                tail.reading = False

    def _last_rows(self, tail: Tail, segments: tuple[Segment, ...]) -> list[dict[str, Any]]:
        """Return the last rows that are there, newest first, as many as the queue has room for."""
        last = replace(tail.question, end_ns=self._now_ns(), limit=tail.limit, direction="backward")
        if last.start_ns >= last.end_ns:
            return []
        rows: list[dict[str, Any]] = []
        size = 0
        for row in self._rows(tail, last, segments):
            size += sum(map(getsizeof, row.values()))
            if tail.closed or (rows and size > tail.queue.most.bytes):
                break
            rows.append(row)
        return rows

    def _rows(self, tail: Tail, question: LogqlQuestion, segments: tuple[Segment, ...]) -> Iterable[dict[str, Any]]:
        now_ns = self._now_ns()
        plan = compile_logql(replace(question, rules=self._rules.of(tail.organization)), now_ns)
        options = Options(now_ns, text=question.text, segments=segments)
        with closing(self._engine.answer(tail.organization, plan, options)) as answer:
            for batch in answer:
                yield from batch.to_pylist()
