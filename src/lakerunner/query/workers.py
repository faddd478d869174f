"""The contract of those who work units out, and of whoever knows them. worker_client.py has those elsewhere."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from lakerunner.query.answer import Answer
from lakerunner.query.unit import Unit


class Worker(Protocol):
    """Safe to use from many threads."""

    @property
    def name(self) -> str:
        """The same as long as it keeps its cache; segments are hashed onto it. No secret is in it."""

    def run(self, unit: Unit) -> Answer:
        """At once. What the answer raises says who is to blame: Lost if this worker broke off or cannot be reached,
        so that another may take the unit over; Unavailable if the object store is away from where it stands."""


class Workers(Protocol):
    def here(self) -> Sequence[Worker]:
        """Those that are believed to be alive, by name; may change from call to call, and be empty."""


class OneWorker:
    """The worker of this process alone."""

    def __init__(self, worker: Worker) -> None:
        self._workers = (worker,)

    def here(self) -> Sequence[Worker]:
        return self._workers
