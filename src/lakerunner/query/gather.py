"""Units of work, handed to workers, and their rows gathered."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from uuid import UUID

import pyarrow as pa

from lakerunner.model.segment import Segment
from lakerunner.plan.sql import Leaf
from lakerunner.query.account import Account
from lakerunner.query.answer import Answer
from lakerunner.query.unit import WorkUnit
from lakerunner.query.workers import Workers


class Gather:
    """The rows of one leaf over its segments. `partial`: segments that cannot be read are named as missing in the
    account; otherwise they are an error."""

    def __init__(
        self, organization: UUID, leaf: Leaf, segments: Sequence[Segment], workers: Workers, *, partial: bool = False
    ) -> None:
        self._unit = WorkUnit(organization, leaf, tuple(segments))
        self._workers = workers
        self._partial = partial
        self._answer: Answer | None = None

    @property
    def account(self) -> Account:
        """At any time, from any thread."""
        return self._answer.account if self._answer else Account()

    def start(self) -> None:
        """Begin the work, in threads of its own, and return at once. Starting twice is fine."""

    def reader(self) -> pa.RecordBatchReader:
        """Once: the rows of all units, as they come; what went wrong is raised from it. Starts the work."""
        self._answer = self._workers.here()[0].run(self._unit)
        return pa.RecordBatchReader.from_batches(self._answer.schema, self._batches(self._answer))

    def close(self) -> None:
        """Stop what still runs, from any thread. Closing twice is fine."""
        if self._answer:
            self._answer.close()

    def _batches(self, answer: Answer) -> Iterator[pa.RecordBatch]:
        yield from answer
