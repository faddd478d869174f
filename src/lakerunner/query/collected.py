"""The answer of a plan that hands over what its leaves give: pieces, leaf by leaf, and the segments they are from."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from lakerunner.plan.plan import Leaf
from lakerunner.query.account import Account
from lakerunner.query.known_segments import Pick
from lakerunner.query.leaf_run import LeafRun
from lakerunner.series.evaluation.pieces import Piece


@dataclass(frozen=True)
class LeafPieces:
    leaf: Leaf
    pick: Pick
    pieces: list[Piece]


class Collected:
    """One thread reads it, leaf by leaf; any thread may close it."""

    def __init__(self, run: LeafRun, leaves: Sequence[Leaf]) -> None:
        self._run = run
        self._leaves = leaves

    @property
    def account(self) -> Account:
        return self._run.account

    def __iter__(self) -> Iterator[LeafPieces]:
        self._run.start()
        picks: dict[Any, Pick] = {}  # leaves over the same range read the same segments, whatever commits in between
        try:
            for leaf in self._leaves:
                over = leaf.scan, leaf.rollup
                if over not in picks:
                    picks[over] = self._run.pick(leaf)
                    self._run.count(picks[over].account)
                pick = picks[over]
                yield LeafPieces(leaf, pick, self._run.pieces(leaf, pick, pick.tiles))
        finally:
            self.close()

    def close(self) -> None:
        self._run.close()
