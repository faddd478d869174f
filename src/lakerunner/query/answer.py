"""The contract of an answer, wherever it is computed: in this process, by a worker over HTTP, in a task of Spark."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Protocol

import pyarrow as pa

from lakerunner.query.contract.account import Account


class Answer(Protocol):
    """Rows as they come, as Arrow batches; of a unit whose operator gives something else, that
    (series/evaluation/pieces.py). The work begins at the first look at `schema` or at a batch, and may raise there or
    at any later batch: an answer that ends without an error is whole, but for what its account names as missing."""

    @property
    def schema(self) -> pa.Schema:
        """Return the columns, whose names are unique. Wait for the first results, not for all of them."""

    @property
    def account(self) -> Account:
        """Return what it took so far, for any thread at any time; at the end, what it took in all."""

    def __iter__(self) -> Iterator[Any]:
        """Give the results, once. Batches may be empty. UserError when the query fails, TooLarge past a limit."""

    def close(self) -> None:
        """Stop the work if it still goes on, from any thread, and give back all it held. Closing twice is fine."""


class FixedAnswer:
    """An Answer whose rows are known."""

    def __init__(self, schema: pa.Schema, batches: Iterator[pa.RecordBatch], account: Account) -> None:
        self.schema = schema
        self.account = account
        self._batches = batches

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        yield from self._batches

    def close(self) -> None:
        """Do nothing: no work goes on."""
