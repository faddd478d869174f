"""The answer of a plan of series: values at the steps, group of time after group of time.

What always holds: groups come in the order of time. A leaf is read from the widest rollups that give the same results;
where it turns out that they do not, from samples.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from lakerunner.model.errors import Unavailable
from lakerunner.model.expiry import NOTHING_EXPIRED
from lakerunner.model.tier import RAW
from lakerunner.model.tiling import NO_TILES, Tiles, clipped
from lakerunner.plan.operator import Operator
from lakerunner.plan.plan import Leaf, Plan
from lakerunner.promql.language import PROMQL
from lakerunner.promql.operators import FetchSamples, SeriesFragment
from lakerunner.promql.plan import SeriesFinish, samples_leaf
from lakerunner.query.account import Account
from lakerunner.query.known_segments import Pick
from lakerunner.query.leaf_run import LeafRun, over_windows, selection_of
from lakerunner.query.metrics.expiry import expiry_notes, gone, unrolled
from lakerunner.query.metrics.groups import in_groups
from lakerunner.query.metrics.reads import Read, Reads
from lakerunner.query.metrics.refusals import RefusalKey
from lakerunner.series.aggregations.split import NotSplit
from lakerunner.series.bounds import Bounds
from lakerunner.series.evaluation.pieces import Piece, Untiered
from lakerunner.series.evaluation.tiers import Guarded
from lakerunner.series.expression import Kind
from lakerunner.series.notes import Note, Notes
from lakerunner.series.values import NO_SAMPLES, Samples, Scalar, Steps, String, Vector


@dataclass(frozen=True)
class Group:
    """A stretch of the question's steps and the value there; its series have their final labels. Samples: of a range
    vector. Series are sorted by labels, but those of an instant in the order of the evaluation."""

    steps: Steps
    value: Vector | Scalar | String | Samples


class SeriesAnswer:
    """Groups in the order of time, as they are worked out; a series may be in many. An answer that ends without an
    error is whole, but for what its account names as missing. One thread reads it; any thread may close it."""

    def __init__(self, run: LeafRun, plan: Plan) -> None:
        self._run = run
        self._plan = plan
        self._finish = _finish(plan)
        self._bounds = Bounds(self._finish.query.limits.max_samples, run.check)
        self._notes = Notes(PROMQL.words)
        self._reads = Reads()

    @property
    def kind(self) -> Kind:
        """Of the expression, before anything is worked out."""
        return self._finish.query.kind

    @property
    def notes(self) -> tuple[Note, ...]:
        """So far; all of them at the end."""
        return self._notes.all() + expired_notes(self.reads)

    @property
    def account(self) -> Account:
        """What it took so far, from any thread."""
        return self._run.account

    @property
    def reads(self) -> tuple[Read, ...]:
        """Which tiers were read, so far."""
        return self._reads.all()

    def __iter__(self) -> Iterator[Group]:
        """Once. UserError when the query fails, TooLarge past a limit."""
        self._run.start()
        steps = self._finish.query.steps
        try:
            if self._run.options.streamed:
                yield from self._ahead(in_groups(steps))
            else:
                yield Group(steps, self._value(self._plan))
        finally:
            self.close()

    def close(self) -> None:
        """Stop the work, from any thread. Closing twice is fine."""
        self._run.close()

    def _ahead(self, groups: Iterator[Steps]) -> Iterator[Group]:
        """While one is read the next is worked out."""
        with ThreadPoolExecutor(1, "series-groups") as pool:
            try:
                coming = pool.submit(self._group, next(groups))
                for steps in groups:
                    group, coming = coming.result(), pool.submit(self._group, steps)
                    yield group
                yield coming.result()
            finally:
                self.close()  # what is worked out for a reader who has left

    def _group(self, steps: Steps) -> Group:
        return Group(steps, self._value(self._finish.within(steps)))

    def _value(self, plan: Plan) -> Vector | Scalar | String | Samples:
        finish = _finish(plan)
        try:
            return self._finished(plan, finish)
        except NotSplit:
            unfolded = finish.unfolded()
            return self._finished(unfolded, _finish(unfolded))

    def _finished(self, plan: Plan, finish: SeriesFinish) -> Vector | Scalar | String | Samples:
        finish.check(self._bounds)
        notes = Notes(PROMQL.words)
        values: dict[Operator, Vector | Samples] = {leaf.operator: self._leaf(leaf, notes) for leaf in plan.leaves}
        value = finish.run(values, self._select, self._bounds, notes)
        self._notes.add(notes.all())
        return value

    def _select(self, operator: FetchSamples) -> Samples:
        """Fetch what only the evaluation could tell that it needs."""
        leaf = samples_leaf(operator)
        return operator.fold(self._raw(leaf, guarded_of(leaf)), Notes(PROMQL.words)) if leaf else NO_SAMPLES

    def _leaf(self, leaf: Leaf, notes: Notes) -> Vector | Samples:
        operator = leaf.operator
        if isinstance(operator, FetchSamples):
            return operator.fold(self._raw(leaf, guarded_of(leaf)), notes)
        if isinstance(operator, SeriesFragment):
            return operator.fold(self._fragment(leaf, operator), notes)
        raise TypeError(f"operator {operator.name} gives no series")

    def _fragment(self, leaf: Leaf, fragment: SeriesFragment) -> list[Piece]:
        """Read the widest tier that gives the same; where it turns out that it does not, samples."""
        if leaf.rollup is None or leaf.rollup.tier == RAW:
            return self._raw(leaf, guarded_of(leaf))
        tier, selection = leaf.rollup.tier, selection_of(leaf)
        now_ns, reach = self._run.options.now_ns, (selection.start, selection.end)
        key = RefusalKey(self._run.organization, fragment.text, tier)
        known = self._run.refusals.reason(key, reach, now_ns)
        if known and (whole := self._whole(leaf)):
            return self._raw(leaf, Guarded(RAW, None, known), whole)
        try:
            pick = self._run.pick_tiers(leaf, tier)
        except Unavailable:  # what is known may be enough for raw points
            return self._raw(leaf, Guarded(RAW, None, "the index is unavailable, which knows where rollups are"))
        self._run.count(pick.account)
        self._reads.add(_read(leaf, fragment.guarded, pick, pick.tiles))
        all_raw = tuple(pick.tiles) == (RAW,)
        read = leaf if all_raw else over_windows(leaf, tier)
        pieces = self._run.pieces(read, pick, NO_TILES if all_raw else pick.tiles)
        untiered = [piece.value.reason for piece in pieces if isinstance(piece.value, Untiered)]
        if not untiered:
            return pieces
        self._run.refusals.add(key, reach, untiered[0], now_ns)
        return self._raw(leaf, Guarded(RAW, None, untiered[0]))

    def _raw(self, leaf: Leaf, guarded: Guarded, pick: Pick | None = None) -> list[Piece]:
        """Read samples, whatever rollups there are."""
        pick = pick or self._run.pick_raw(leaf.scan)
        self._run.count(pick.account)
        self._reads.add(raw_read(leaf, guarded, pick))
        return self._run.pieces(leaf, pick)

    def _whole(self, leaf: Leaf) -> Pick | None:
        """None where some raw points have expired, or the index is away: windows may have more."""
        try:
            pick = self._run.pick_raw(leaf.scan)
        except Unavailable:
            return None
        return pick if pick.expiry == NOTHING_EXPIRED else None


def expired_notes(reads: Sequence[Read]) -> tuple[Note, ...]:
    return expiry_notes([(read.fragment, read.gone, read.unrolled) for read in reads])


def raw_read(leaf: Leaf, guarded: Guarded, pick: Pick) -> Read:
    times = selection_of(leaf).start, selection_of(leaf).end
    return _read(leaf, guarded, pick, {RAW: (times,)} if times[0] < times[1] else {})


def _read(leaf: Leaf, guarded: Guarded, pick: Pick, tiles: Tiles) -> Read:
    """What is read for a leaf, and what of it has expired."""
    operator = leaf.operator
    if not isinstance(operator, SeriesFragment | FetchSamples):
        raise TypeError(f"operator {operator.name} gives no series")
    selection = selection_of(leaf)
    needed = clipped(tiles, (selection.start, selection.end))
    missing = gone(needed, pick.expiry, guarded), unrolled(needed, pick.expiry)
    return Read(operator.text, guarded.tier, guarded.reason, tiles, *missing)


def _finish(plan: Plan) -> SeriesFinish:
    if not isinstance(plan.finish, SeriesFinish):
        raise TypeError(f"{plan.finish} gives no series")
    return plan.finish


def guarded_of(leaf: Leaf) -> Guarded:
    """What the plan says of a leaf that is read raw."""
    operator = leaf.operator
    if isinstance(operator, SeriesFragment) and leaf.rollup and leaf.rollup.reason == operator.guarded.reason:
        return operator.guarded
    return Guarded(RAW, None, leaf.rollup.reason if leaf.rollup else "")
