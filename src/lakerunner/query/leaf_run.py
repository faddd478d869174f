"""Leaves on series of one query, one after the other: which segments and rollups are read, and what workers make of
them.

What always holds: past the time that a query may run, and once it is closed, every step ends with an error.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from math import inf
from threading import Event, Lock, Timer
from time import monotonic
from uuid import UUID

from lakerunner.model.errors import UserError
from lakerunner.model.tier import RAW
from lakerunner.model.tiling import NO_TILES, Tiles, aligned
from lakerunner.plan.plan import Leaf
from lakerunner.plan.scan import Scan
from lakerunner.promql.sample_range import Selection
from lakerunner.query.account import Account
from lakerunner.query.failures import cancelled, too_long
from lakerunner.query.gather import Gathering
from lakerunner.query.known_segments import KnownSegments, Pick
from lakerunner.query.metrics.refusals import Refusals
from lakerunner.query.options import Options
from lakerunner.query.piece_gather import PieceGather
from lakerunner.query.workers import Workers
from lakerunner.series.evaluation.pieces import Piece

NOTHING_PICKED = Pick((), Account())


@dataclass(frozen=True)
class Resources:
    """What queries share. `seconds` is how long one may run; `refusals` are of fragments that rollups did not serve."""

    segments: KnownSegments
    workers: Workers
    gathering: Gathering
    seconds: float
    refusals: Refusals = field(default_factory=Refusals)


class LeafRun:
    """One thread runs leaves; any thread may close it."""

    def __init__(self, resources: Resources, organization: UUID, options: Options) -> None:
        self.organization = organization
        self.options = options
        self.refusals = resources.refusals
        self._resources = resources
        self._how = replace(resources.gathering, partial=options.partial)
        self._lock = Lock()
        self._account = Account()
        self._running: PieceGather | None = None
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
        """Let the time of the query begin, once. When it is over, what still runs is stopped."""
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

    def check(self) -> None:
        if monotonic() >= self._deadline:
            raise too_long(self._resources.seconds)
        if self._stopped.is_set():
            raise cancelled()

    def pick(self, leaf: Leaf) -> Pick:
        """Pick rollups where they may serve the leaf, else raw points. What it took is not counted yet."""
        if leaf.rollup and leaf.rollup.tier != RAW:
            return self.pick_tiers(leaf, leaf.rollup.tier)
        return self.pick_raw(leaf.scan)

    def pick_raw(self, scan: Scan) -> Pick:
        return self._resources.segments.pick(self.organization, scan, self.options.now_ns)

    def pick_tiers(self, leaf: Leaf, tier: int) -> Pick:
        """Pick windows of this tier at most, with the whole of the window in which the selection begins."""
        over = _over(selection_of(leaf), tier)
        if over.time is None:
            return NOTHING_PICKED
        scan = replace(leaf.scan, time=over.time)
        reach = over.start, over.end
        return self._resources.segments.pick_tiers(self.organization, reach, tier, scan, self.options.now_ns)

    def pieces(self, leaf: Leaf, pick: Pick, tiles: Tiles = NO_TILES) -> list[Piece]:
        """Have workers do the leaf over the picked segments: pieces in the order of the parts."""
        self.check()
        if not pick.segments:
            return []
        gather = PieceGather(self.organization, leaf, pick.segments, self._resources.workers, self._how, tiles)
        with self._lock:
            self._running = gather
        try:
            if self._stopped.is_set():  # close() sets the flag first: it sees this gather, or we see the flag
                self.check()
            return gather.pieces()
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
    """Return the leaf whose operator reads whole windows: its selection begins where the first of them does."""
    return replace(leaf, operator=replace(leaf.operator, selection=_over(selection_of(leaf), tier)))  # type: ignore[type-var]


def _over(selection: Selection, tier: int) -> Selection:
    start, end = aligned((selection.start, selection.end), tier)
    return replace(selection, start=start, end=end)
