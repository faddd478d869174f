"""Units of metrics, done by many workers: handed out, gathered in the order of the units, the lost taken over.

What always holds: each unit's pieces are there once and whole, or the whole ends with an error, or the account names
what is missing. A worker that was lost is not asked again; a unit goes to each worker once at most; if the object store
is away from a worker, one other is tried.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from threading import Event, Lock
from uuid import UUID

import pyarrow as pa

from lakerunner.model.errors import Busy, LakerunnerError, Lost, Unavailable
from lakerunner.model.time import TimeRange
from lakerunner.query.account import Account, Missing
from lakerunner.query.answer import Answer
from lakerunner.query.assign import ranked
from lakerunner.query.failures import cancelled
from lakerunner.query.metrics.pieces import Piece, from_batch
from lakerunner.query.metrics.unit import MetricsUnit
from lakerunner.query.workers import Worker, Workers
from lakerunner.series.bounds import too_many_samples

_AT_ONCE = 32
_AT_ONCE_PER_WORKER = 2


class MetricsGather:
    """For one query. `run` is for one thread at a time; `close` for any. `max_points` of all pieces of a run: more are
    TooLarge as soon as they are here."""

    def __init__(self, workers: Workers, max_points: int = 1 << 62) -> None:
        self._known = workers
        self._max_points = max_points
        self._points = 0
        self._lock = Lock()
        self._closed = Event()
        self._running: set[Answer] = set()
        self._lost: dict[str, str] = {}
        self.account = Account()

    def run(self, units: Sequence[MetricsUnit]) -> list[list[Piece]]:
        """The pieces of each unit."""
        self._points = 0
        workers = {worker.name: worker for worker in self._known.here()}
        if not workers:
            raise Unavailable("no query workers available (setting `workers`)")
        if len(units) == 1:
            return [self._unit(units[0], 0, workers)]
        at_once = min(_AT_ONCE, _AT_ONCE_PER_WORKER * len(workers), len(units))
        with ThreadPoolExecutor(max(1, at_once), "metrics-gather") as pool:
            futures = [pool.submit(self._unit, unit, n, workers) for n, unit in enumerate(units)]
            try:
                return [future.result() for future in futures]
            except BaseException:
                for future in futures:
                    future.cancel()
                self.close()  # what the others still do is for nothing
                raise

    def close(self) -> None:
        self._closed.set()
        with self._lock:
            running = list(self._running)
        for answer in running:
            answer.close()

    def _unit(self, unit: MetricsUnit, number: int, workers: dict[str, Worker]) -> list[Piece]:
        """By the worker that it falls to, or whoever can take it over."""
        store_was_away = False
        failure: LakerunnerError = Unavailable("no query worker is reachable")
        for name in _ranked(unit, number, workers):
            if name in self._lost:
                continue
            try:
                return self._attempt(unit, workers[name])
            except Lost as error:
                with self._lock:
                    self._lost[name] = str(error)
                    told = "; ".join(self._lost.values())
                failure = Unavailable(f"no query worker is reachable: {told}")
            except Busy as error:
                failure = error
            except Unavailable as error:
                failure = error
                if store_was_away:
                    break
                store_was_away = True
        if unit.partial and unit.segments:
            self._add(Account(missing=(_missing(unit, failure),)))
            return []
        raise failure

    def _attempt(self, unit: MetricsUnit, worker: Worker) -> list[Piece]:
        answer = worker.run(unit)
        pieces: list[Piece] = []
        with closing(answer):
            with self._lock:
                self._running.add(answer)
            try:
                if self._closed.is_set():
                    raise cancelled()
                for piece in _pieces(answer):
                    pieces.append(piece)
                    self._hold(piece.points)
            except Unavailable:  # another begins anew
                with self._lock:
                    self._points -= sum(piece.points for piece in pieces)
                raise
            finally:
                with self._lock:
                    self._running.discard(answer)
        self._add(answer.account + Account(workers={worker.name: 1}))
        return pieces

    def _hold(self, points: int) -> None:
        with self._lock:
            self._points += points
        if self._points > self._max_points:
            raise too_many_samples(self._max_points)

    def _add(self, account: Account) -> None:
        with self._lock:
            self.account += account


def _pieces(answer: Answer) -> Iterable[Piece]:
    """As they are where the work is done in this process."""
    own = getattr(answer, "pieces", None)
    if own is not None:
        yield from own()
        return
    batch: pa.RecordBatch
    for batch in answer:
        yield from from_batch(batch)


def _ranked(unit: MetricsUnit, number: int, workers: dict[str, Worker]) -> list[str]:
    """Units over the same segments fall to one worker after the other, to the same ones every time."""
    names = ranked(unit.segments[0].id if unit.segments else UUID(int=0), workers)
    first = number % len(names)
    return names[first:] + names[:first]


def _missing(unit: MetricsUnit, error: Exception) -> Missing:
    time = TimeRange(min(s.time.start_ns for s in unit.segments), max(s.time.end_ns for s in unit.segments))
    return Missing(len(unit.segments), time, str(error))
