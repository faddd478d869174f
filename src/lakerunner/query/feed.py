"""The rows of leaves, on their way from the workers into the coordinator, and how long they were waited for."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from typing import TypeVar

import pyarrow as pa

from lakerunner.query.account import Account, total
from lakerunner.query.failures import cancelled
from lakerunner.query.gather import Gather

T = TypeVar("T")


class Feed:
    """Those of one leaf: an Answer (query/answer.py) of its own, where the coordinator has nothing to add."""

    def __init__(self, gather: Gather, clock: Callable[[], float] = time.monotonic) -> None:
        self._gather = gather
        self._clock = clock
        self._rows: pa.RecordBatchReader | None = None
        self._waited = 0.0
        self._closed = False

    @property
    def schema(self) -> pa.Schema:
        return self._open().schema

    @property
    def account(self) -> Account:
        return self._gather.account + Account(seconds={"gather": self._waited})

    @property
    def failure(self) -> Exception | None:
        return self._gather.failure

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        rows = self._open()
        while (batch := self._timed(lambda: next(rows, None))) is not None:
            yield batch
            self._go_on()

    def start(self) -> None:
        """Begin the work and return at once."""
        self._gather.start()

    def reader(self) -> pa.RecordBatchReader:
        """Once: the same rows, for DuckDB."""
        return pa.RecordBatchReader.from_batches(self.schema, iter(self))

    def close(self) -> None:
        self._closed = True
        self._gather.close()

    def _open(self) -> pa.RecordBatchReader:
        if self._rows is None:
            self._go_on()
            self._rows = self._timed(self._gather.reader)
        return self._rows

    def _go_on(self) -> None:
        if self._closed:
            raise cancelled()

    def _timed(self, step: Callable[[], T]) -> T:
        began = self._clock()
        try:
            return step()
        finally:
            self._waited += self._clock() - began


class Feeds:
    """Those of all leaves, by relation: the Source of what the coordinator runs (query/running.py)."""

    def __init__(self, feeds: Mapping[str, Feed]) -> None:
        self._feeds = feeds

    @property
    def account(self) -> Account:
        return total(feed.account for feed in self._feeds.values())

    @property
    def failure(self) -> Exception | None:
        return next((feed.failure for feed in self._feeds.values() if feed.failure), None)

    def start(self) -> None:
        for feed in self._feeds.values():
            feed.start()

    def readers(self) -> dict[str, pa.RecordBatchReader]:
        """All start at once, however they are read."""
        self.start()
        return {relation: feed.reader() for relation, feed in self._feeds.items()}

    def close(self) -> None:
        for feed in self._feeds.values():
            feed.close()
