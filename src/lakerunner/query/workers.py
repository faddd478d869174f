"""The contract of those who work units out, and of what knows them.

Three things run units: this process (query/worker.py), query workers over HTTP (api/workers/worker_api.py), and
tasks of Spark (below; Spark itself is handed in). What they give is the same to the last bit.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from contextlib import suppress
from typing import Protocol
from uuid import UUID

from lakerunner.model.errors import Busy, Lost, Unavailable
from lakerunner.plan.operator import Operator
from lakerunner.query.answer import Answer
from lakerunner.query.answer_frames import FramedAnswer
from lakerunner.query.unit import Unit


class Worker(Protocol):
    """Safe to use from many threads."""

    @property
    def name(self) -> str:
        """The same as long as it keeps its cache; segments are hashed onto it. No secret is in it."""

    def run(self, unit: Unit) -> Answer:
        """Return at once. What the answer raises says who is to blame: Lost if this worker broke off or cannot be
        reached, so that another may take the unit over; Unavailable if the object store is away from where it
        stands."""


class Workers(Protocol):
    def here(self) -> Sequence[Worker]:
        """Return those that are believed to be alive, by name; may change from call to call, and be empty."""


class OneWorker:
    """The worker of this process alone."""

    def __init__(self, worker: Worker) -> None:
        self._workers = (worker,)

    def here(self) -> Sequence[Worker]:
        return self._workers


# Tasks of Spark


class TaskRun(Protocol):
    """One task: bytes in, bytes out."""

    def chunks(self) -> Iterator[bytes | bytearray]:
        """Run it, once, and give what it answers."""

    def cancel(self) -> None:
        """Stop it, from any thread, at any time, and return at once. Cancelling twice is fine."""


class TaskLease(Protocol):
    """What runs the tasks of one query and of no other. Safe to use from many threads."""

    def start(self, content: bytes) -> TaskRun:
        """Return at once: what runs tasks is opened when the first of them is read."""

    def close(self) -> None:
        """Cancel what still runs and give all back, from any thread. Return at once; closing twice is fine."""


class TaskPool(Protocol):
    """Safe to use from many threads. `slots`: how many tasks of a query run at once."""

    slots: int

    def lease(self, organization: UUID) -> TaskLease:
        """Return at once."""


class LeasedWorkers:
    """Workers of one query, which are its own until it is closed: spark-1 to spark-N, one for each slot."""

    def __init__(self, pool: TaskPool, organization: UUID) -> None:
        self._lease = pool.lease(organization)
        self._workers = [_TaskWorker(f"spark-{number}", self._lease) for number in range(1, pool.slots + 1)]

    def here(self) -> Sequence[Worker]:
        return self._workers

    def close(self) -> None:
        """Give them back. Closing twice is fine."""
        self._lease.close()


class _TaskWorker:
    """A slot. Which process of Spark runs a task is for Spark to choose."""

    def __init__(self, name: str, lease: TaskLease) -> None:
        self.name = name
        self._lease = lease

    def run(self, unit: Unit) -> Answer:
        return _TaskAnswer(self._lease.start(unit.to_bytes()), self.name, unit.leaf.operator)


class _TaskAnswer(FramedAnswer):
    """What a task answers. The process that sent it has run a stranger's query: it is read as Arrow and JSON, and
    checked."""

    def __init__(self, run: TaskRun, worker: str, operator: Operator) -> None:
        self._chunks = _chunks(run, worker)
        super().__init__(self._chunks, operator, checked=True)
        self._worker = worker
        self._run = run

    def close(self) -> None:
        self._run.cancel()
        with suppress(ValueError):  # another thread is reading them, and ends them
            self._chunks.close()

    def _lost(self, error: Exception) -> Lost:
        return Lost(f"{self._worker} broke off its answer: {type(error).__name__}")


def _chunks(run: TaskRun, worker: str) -> Generator[bytes | bytearray]:
    """Where the process that runs all tasks of the query is gone, the worker is lost: nothing is missing in an answer
    because of that, it fails."""
    try:
        yield from run.chunks()
    except Busy:
        raise
    except Unavailable as error:
        raise Lost(str(error), detail=f"{worker}: {error.detail}") from error


def release(workers: Workers) -> None:
    """Give workers back that are of one query alone; others stay."""
    if isinstance(workers, LeasedWorkers):
        workers.close()
