"""An answer worked out in rounds, one stretch of time after the other; all at once is one round.

Comes in: the rounds in their order, and which rows of all of them are wanted. Goes out: those rows, as soon as they are
final. What always holds: the rows are those of all rounds, one after the other, from `offset` on, `limit` of them; when
they are there, what still runs is stopped and later rounds are never begun. While a round is read, the workers are at
the next ones already, but at no more than two of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa

from lakerunner.query.account import Account, total
from lakerunner.query.answer import Answer
from lakerunner.query.coordinate import Leaves
from lakerunner.query.failures import cancelled

_AHEAD = 2


@dataclass(frozen=True)
class Round:
    """The answer over one stretch, the rows of leaves that it is made of, and of how many segments."""

    answer: Answer
    leaves: Leaves
    segments: int

    def start(self) -> None:
        self.leaves.start()

    def close(self) -> None:
        """The leaves first: the answer may be waiting for them."""
        self.leaves.close()
        self.answer.close()


class InRounds:
    """An Answer (query/answer.py). `rounds`: at least one; `limit` None: all rows."""

    def __init__(self, rounds: Sequence[Round], offset: int = 0, limit: int | None = None) -> None:
        self._rounds = rounds
        self._offset = offset
        self._limit = limit
        self._closed = False
        self._ended = False

    @property
    def schema(self) -> pa.Schema:
        return self._rounds[0].answer.schema

    @property
    def account(self) -> Account:
        account = total(round_.answer.account for round_ in self._rounds)
        left = sum(round_.segments for round_ in self._rounds) - account.done
        return account + Account(pruned={"limit": left}) if self._ended and left > 0 else account

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        skip, left = self._offset, self._limit
        _ = self.schema
        try:
            for batch in self._batches():
                skipped = min(skip, batch.num_rows)
                batch = batch.slice(skipped, left)
                skip -= skipped
                if left is not None:
                    left -= batch.num_rows
                if left == 0:
                    self.close()  # before the rows go out: nobody works on while they are read
                yield batch
                if left == 0:
                    break
            self._ended = True
        finally:
            self.close()

    def close(self) -> None:
        self._closed = True
        for round_ in self._rounds:
            round_.close()

    def _batches(self) -> Iterator[pa.RecordBatch]:
        if self._limit == 0:
            return
        for n, round_ in enumerate(self._rounds):
            # A limit may be reached at once: the workers run ahead only after a round that did not reach it.
            ahead = _AHEAD if self._limit is None else min(n, _AHEAD)
            for coming in self._rounds[n : n + ahead + 1]:
                coming.start()
            yield from round_.answer
            if self._closed:
                raise cancelled()
