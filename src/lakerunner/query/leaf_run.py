"""Runs leaves on series, one after the other: picks segments and rollups, and has workers compute pieces of them.

A piece (series/evaluation/pieces.py) is what one unit gives for a part of the series. Pieces are in the order of the
units, whichever worker computed them, because the fold depends on it. Past the time limit of the query, and once it is
closed, every step raises an error.

Fragments that workers refused to compute from rollups are remembered for a while: later queries go to raw points at
once (docs/formats/tiers.md). This only saves work, since raw points give the same answer; it must not be used where
some of them have expired.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from math import inf
from threading import Event, Lock, Timer
from time import monotonic
from typing import Any
from uuid import UUID

import pyarrow as pa

from lakerunner.model.errors import UserError
from lakerunner.model.lru import LruCache
from lakerunner.model.segment import Segment
from lakerunner.model.tier import NO_TILES, RAW, Interval, Tiles, align_start
from lakerunner.model.time import SECOND_NS, time_text
from lakerunner.plan.plan import Leaf
from lakerunner.plan.scan import Scan
from lakerunner.promql.operators import Selection
from lakerunner.query.answer import Answer
from lakerunner.query.contract.account import Account
from lakerunner.query.contract.failures import cancelled, too_long
from lakerunner.query.gather import Gather, GatherOptions, Task
from lakerunner.query.known_segments import KnownSegments, Pick, PointsPick
from lakerunner.query.options import DUCKDB, SPARK, Options, SparkIsOff, read_engine
from lakerunner.query.row_gather import RowGather
from lakerunner.query.workers import LeasedWorkers, TaskPool, Workers, release
from lakerunner.series.evaluation.pieces import Piece, SeriesOperator

NOTHING_PICKED = Pick((), Account())
MOST = 1_000
SECONDS = 300


@dataclass(frozen=True)
class RefusalKey:
    """A fragment by its text, computed from windows of this tier at most."""

    organization: UUID
    fragment: str
    tier: int


@dataclass(frozen=True)
class _Refusal:
    reason: str
    reach: Interval  # the time for which it was found
    found_ns: int


class Refusals:
    """Bounded memory of refusals: at most MOST, the least recently used go first, each for SECONDS. Safe to use from
    many threads; times come from the queries."""

    def __init__(self, most: int = MOST) -> None:
        self._found: LruCache[_Refusal] = LruCache(most)

    def add(self, key: RefusalKey, reach: Interval, reason: str, now_ns: int) -> None:
        self._found.put(key, _Refusal(reason, reach, now_ns), 1)

    def reason(self, key: RefusalKey, reach: Interval, now_ns: int) -> str:
        """Return why the fragment was refused a short time ago, for a time that overlaps `reach`; "" if it was not."""
        known = self._found.get(key)
        if known is None or known.reach[0] >= reach[1] or known.reach[1] <= reach[0]:
            return ""
        if now_ns - known.found_ns >= SECONDS * SECOND_NS:
            self._found.drop(key)
            return ""
        return f"{known.reason}, as found at {time_text(known.found_ns // SECOND_NS * SECOND_NS)} UTC"


class PieceGather(Gather):
    """The pieces of a leaf on series, all of them, in the order of its units."""

    def __init__(
        self,
        organization: UUID,
        leaf: Leaf,
        segments: Sequence[Segment],
        workers: Workers,
        how: GatherOptions,
        tiles: Tiles,
    ) -> None:
        super().__init__(organization, leaf, segments, workers, how, tiles)
        self._pieces: dict[int, list[Piece]] = {}
        self._points = 0

    def pieces(self) -> list[Piece]:
        """Wait for all pieces and return them, once. Raises what went wrong."""
        only: Task | None = None
        with self._state:
            if self._prepare():
                if len(self._pending) == 1:
                    # For this thread: starting another would take as long as many a query.
                    (only,) = self._pending
                    self._take(only)
                else:
                    self._dispatch()
        if only is not None:
            self._work(only)
        with self._state:
            self._state.wait_for(lambda: self._ended or self._failure is not None or self._closed)
            if self._failure or self._closed:
                raise self._failure or cancelled()
            return [piece for number in sorted(self._pieces) for piece in self._pieces[number]]

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
        except BaseException:  # another worker starts the unit again
            with self._state:
                self._points -= sum(piece.points for piece in pieces)
            raise
        with self._state:
            self._pieces[task.number] = pieces

    def _end(self) -> bool:
        return True

    def _stop(self) -> None:
        """Do nothing: no thread is blocked."""


@dataclass(frozen=True)
class Resources:
    """What queries share. `seconds` limits the running time of one; `refusals` are fragments that rollups did not
    serve."""

    segments: KnownSegments
    workers: Workers
    gathering: GatherOptions
    seconds: float
    refusals: Refusals = field(default_factory=Refusals)
    spark: TaskPool | None = None

    def check_engine(self, options: Options) -> None:
        """Raise UserError for an engine that is unknown or off."""
        if read_engine(options.engine) == SPARK and self.spark is None:
            raise SparkIsOff

    def workers_for(self, organization: UUID, options: Options) -> Workers:
        """Return the workers of one query, to be given back (`release`) when it has ended."""
        self.check_engine(options)
        return (
            self.workers if self.spark is None or options.engine == DUCKDB else LeasedWorkers(self.spark, organization)
        )


class LeafRun:
    """The leaves of one query. One thread runs them; any thread may close it."""

    def __init__(self, resources: Resources, organization: UUID, options: Options) -> None:
        self.organization = organization
        self.options = options
        self.refusals = resources.refusals
        self._resources = resources
        self._workers = resources.workers_for(organization, options)
        self._how = replace(resources.gathering, partial=options.partial)
        self._lock = Lock()
        self._account = Account()
        self._running: Gather | None = None
        self._stopped = Event()
        self._timer: Timer | None = None
        self._deadline = inf

    @property
    def account(self) -> Account:
        with self._lock:
            running = self._running
            return self._account + running.account if running else self._account

    def count(self, account: Account) -> None:
        with self._lock:
            self._account += account

    def start(self) -> None:
        """Start the time limit of the query, once. At its end, running work is stopped."""
        if self._timer is None:
            self._deadline = monotonic() + self._resources.seconds
            self._timer = Timer(self._resources.seconds, self.close)
            self._timer.daemon = True
            self._timer.start()

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._stopped.set()
        with self._lock:
            running = self._running
        if running:
            running.close()
        release(self._workers)

    def check(self) -> None:
        if monotonic() >= self._deadline:
            raise too_long(self._resources.seconds)
        if self._stopped.is_set():
            raise cancelled()

    def pick(self, leaf: Leaf) -> Pick:
        """Pick rollups where they may serve the leaf, else raw points. The caller counts the pick's account."""
        if leaf.rollup and leaf.rollup.tier != RAW:
            return self.pick_tiers(leaf, leaf.rollup.tier)
        return self.pick_raw(leaf.scan)

    def pick_raw(self, scan: Scan) -> Pick:
        return self._resources.segments.pick(self.organization, scan, self.options.now_ns)

    def pick_points(self, leaf: Leaf) -> PointsPick | None:
        """Pick the points that stand for a leaf's rows, and the other rows; None: all rows are read."""
        return self._resources.segments.pick_points(self.organization, leaf) if leaf.points else None

    def pick_tiers(self, leaf: Leaf, tier: int) -> Pick:
        """Pick windows of this tier at most, from the start of the window in which the selection begins."""
        selection = _aligned(selection_of(leaf), tier)
        if selection.time is None:
            return NOTHING_PICKED
        scan = replace(leaf.scan, time=selection.time)
        reach = selection.start, selection.end
        return self._resources.segments.pick_tiers(self.organization, reach, tier, scan, self.options.now_ns)

    def pieces(self, leaf: Leaf, pick: Pick, tiles: Tiles = NO_TILES) -> list[Piece]:
        """Have workers run the leaf over the picked segments; return pieces in the order of the units."""
        self.check()
        if not pick.segments:
            return []
        gather = PieceGather(self.organization, leaf, pick.segments, self._workers, self._how, tiles)
        with self._accounted(gather):
            return gather.pieces()

    def rows(self, leaf: Leaf, pick: Pick) -> Iterator[pa.RecordBatch]:
        """Have workers run a leaf on rows over the picked segments; yield its batches as they come."""
        self.check()
        if pick.segments:
            gather = RowGather(self.organization, leaf, pick.segments, self._workers, self._how)
            with self._accounted(gather):
                yield from gather

    @contextmanager
    def _accounted(self, gather: Gather) -> Iterator[None]:
        """Let `close` stop the gather, and count what it took."""
        with self._lock:
            self._running = gather
        try:
            if self._stopped.is_set():  # close() sets the flag first: it sees this gather, or we see the flag
                self.check()
            yield
        except UserError:
            self.check()
            raise
        finally:
            with self._lock:
                self._account += gather.account
                self._running = None
            gather.close()


def selection_of(leaf: Leaf) -> Selection:
    found = getattr(leaf.operator, "selection", None)
    if not isinstance(found, Selection):
        raise TypeError(f"operator {leaf.operator.name} selects no series")
    return found


def over_windows(leaf: Leaf, tier: int) -> Leaf:
    """Return the leaf with an operator that reads whole windows: its selection starts where the first window does."""
    return replace(leaf, operator=replace(leaf.operator, selection=_aligned(selection_of(leaf), tier)))  # type: ignore[type-var]


def _aligned(selection: Selection, tier: int) -> Selection:
    start, end = align_start((selection.start, selection.end), tier)
    return replace(selection, start=start, end=end)


@dataclass(frozen=True)
class LeafPieces:
    leaf: Leaf
    pick: Pick
    pieces: list[Piece]


class CollectAnswer:
    """The answer of a plan without a finish: pieces leaf by leaf, with the pick that they are from. One thread reads
    it; any thread may close it."""

    def __init__(self, run: LeafRun, leaves: Sequence[Leaf]) -> None:
        self._run = run
        self._leaves = leaves

    @property
    def account(self) -> Account:
        return self._run.account

    def __iter__(self) -> Iterator[LeafPieces]:
        self._run.start()
        # Leaves over the same range share their pick, so that a commit in between cannot make them differ.
        picks: dict[Any, Pick] = {}
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
