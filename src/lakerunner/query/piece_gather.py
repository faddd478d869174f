"""The pieces of a leaf on series, gathered whole.

What always holds: pieces stand in the order of the units, whoever worked them out: what is folded depends on it.
"""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

from lakerunner.model.segment import Segment
from lakerunner.model.tiling import Tiles
from lakerunner.plan.plan import Leaf
from lakerunner.query.answer import Answer
from lakerunner.query.failures import cancelled
from lakerunner.query.gather import Gather, Gathering, Task
from lakerunner.query.workers import Workers
from lakerunner.series.evaluation.operator import SeriesOperator
from lakerunner.series.evaluation.pieces import Piece


class PieceGather(Gather):
    """The pieces of a leaf on series, all of them, in the order of its units: what is folded depends on that order."""

    def __init__(
        self,
        organization: UUID,
        leaf: Leaf,
        segments: Sequence[Segment],
        workers: Workers,
        how: Gathering,
        tiles: Tiles,
    ) -> None:
        super().__init__(organization, leaf, segments, workers, how, tiles)
        self._pieces: dict[int, list[Piece]] = {}
        self._points = 0

    def pieces(self) -> list[Piece]:
        """Once, blocking. Raises what went wrong."""
        task = self._only_task()
        if task is not None:
            self._work(task)
        with self._state:
            self._state.wait_for(lambda: self._ended or self._failure is not None or self._closed)
            if self._failure or self._closed:
                raise self._failure or cancelled()
            return [piece for number in sorted(self._pieces) for piece in self._pieces[number]]

    def _only_task(self) -> Task | None:
        """Start the work; one unit alone is returned, for the thread that waits for it anyway: a thread of its own
        would take as long as many a query."""
        with self._state:
            if not self._prepare():
                return None
            if len(self._pending) != 1:
                self._dispatch()
                return None
            (task,) = self._pending
            self._take(task)
            return task

    def _hand_on(self, task: Task, answer: Answer) -> None:
        operator = self._leaf.operator
        pieces: list[Piece] = []
        try:
            for piece in answer:
                pieces.append(piece)
                with self._state:
                    self._points += piece.points
                if isinstance(operator, SeriesOperator):
                    operator.check_points(self._points)
        except BaseException:  # another begins again
            with self._state:
                self._points -= sum(piece.points for piece in pieces)
            raise
        with self._state:
            self._pieces[task.number] = pieces

    def _end(self) -> bool:
        return True

    def _stop(self) -> None:
        """Nothing waits."""
