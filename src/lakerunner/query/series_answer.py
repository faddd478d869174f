"""The answer of a plan of series: values at the steps, one group of steps after the other.

Groups come in the order of time, without a gap, and hold every step once. They start at multiples of their length since
the epoch, except the first, so that the same time always falls into the same group. A leaf is read from the widest
rollups that give the same results; where a worker finds that they do not, from samples.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from lakerunner.model.errors import Unavailable
from lakerunner.model.tier import NO_TILES, NOTHING_EXPIRED, RAW, Tiles, clip_tiles
from lakerunner.model.time import HOUR_NS, MINUTE_NS
from lakerunner.plan.operator import Operator
from lakerunner.plan.plan import Leaf, Plan
from lakerunner.promql.operators import FetchSamples, SeriesFragment
from lakerunner.promql.plan import samples_leaf
from lakerunner.query.contract.account import Account
from lakerunner.query.known_segments import Pick
from lakerunner.query.leaf_run import LeafRun, RefusalKey, over_windows, selection_of
from lakerunner.query.reads import Read, Reads, expired_points, expiry_notes, unrolled_points
from lakerunner.series.aggregations.aggregation import NotSplit
from lakerunner.series.bounds import Bounds
from lakerunner.series.evaluation.pieces import Piece, Untiered
from lakerunner.series.evaluation.series_finish import AnswerValue, SampleOperator, SeriesFinish
from lakerunner.series.evaluation.tiers import TierChoice
from lakerunner.series.expression import Kind
from lakerunner.series.notes import Note, Notes
from lakerunner.series.values import NO_SAMPLES, Samples, Steps, Vector, join_samples

_LENGTHS_NS = (
    *(minutes * MINUTE_NS for minutes in (1, 5, 15, 30)),
    *(hours * HOUR_NS for hours in (1, 2, 6, 12)),
    *(24 * days * HOUR_NS for days in (1, 2, 7, 30, 365)),
)
_ATTEMPTS = 3  # each plan in which workers aggregate less
_GROUPS = 12  # roughly; each group costs a round trip through the workers


@dataclass(frozen=True)
class StepGroup:
    """An interval of the query's steps and the value there; its series have their final labels. The value of a range
    vector is Samples. Series are sorted by labels, those of an instant query in the order of the evaluation."""

    steps: Steps
    value: AnswerValue


class SeriesAnswer:
    """Groups in the order of time, as they are computed; a series may be in many. An answer that ends without an error
    is complete except for what its account names as missing. One thread reads it; any thread may close it."""

    def __init__(self, run: LeafRun, plan: Plan) -> None:
        self._run = run
        self._plan = plan
        self._finish = _finish(plan)
        self._words = self._finish.language.words
        self._bounds = Bounds(self._finish.max_samples, run.check)
        self._notes = Notes(self._words)
        self._reads = Reads()

    @property
    def kind(self) -> Kind:
        """Return the kind of the expression, known before the evaluation."""
        return self._finish.kind

    @property
    def notes(self) -> tuple[Note, ...]:
        """Return the notes so far; all of them at the end."""
        return self._notes.all() + expiry_notes(self.reads)

    @property
    def account(self) -> Account:
        """Return what it took so far, from any thread."""
        return self._run.account

    @property
    def reads(self) -> tuple[Read, ...]:
        """Return which tiers were read so far."""
        return self._reads.all()

    def __iter__(self) -> Iterator[StepGroup]:
        """Yield the groups, once. UserError if the query fails, TooLarge past a limit."""
        self._run.start()
        steps = self._finish.steps
        try:
            if self._run.options.streamed:
                yield from self._ahead(step_groups(steps, self._finish.language.tick_ns))
            else:
                yield StepGroup(steps, self._value(self._plan))
        finally:
            self.close()

    def close(self) -> None:
        """Stop the work, from any thread. Closing twice is fine."""
        self._run.close()

    def _ahead(self, groups: Iterator[Steps]) -> Iterator[StepGroup]:
        """Compute the next group while one is read."""
        with ThreadPoolExecutor(1, "series-groups") as pool:
            try:
                coming = pool.submit(self._group, next(groups))
                for steps in groups:
                    group, coming = coming.result(), pool.submit(self._group, steps)
                    yield group
                yield coming.result()
            finally:
                self.close()  # stops what is computed for a reader that has left

    def _group(self, steps: Steps) -> StepGroup:
        return StepGroup(steps, self._value(self._finish.within(steps)))

    def _value(self, plan: Plan) -> AnswerValue:
        for _ in range(_ATTEMPTS - 1):
            try:
                return self._run_finish(plan, _finish(plan))
            except NotSplit:
                plan = _finish(plan).unfolded()
        return self._run_finish(plan, _finish(plan))

    def _run_finish(self, plan: Plan, finish: SeriesFinish) -> AnswerValue:
        finish.check(self._bounds)
        notes = Notes(self._words)
        values: dict[Operator, Vector | Samples] = {leaf.operator: self._leaf(leaf, notes) for leaf in plan.leaves}
        value = finish.run(values, self._select, self._bounds, notes)
        self._notes.add(notes.all())
        return value

    def _select(self, operator: FetchSamples) -> Samples:
        """Fetch samples whose need became known only during the evaluation."""
        leaf = samples_leaf(operator)
        return operator.fold(self._raw(leaf, guarded_of(leaf)), Notes(self._words)) if leaf else NO_SAMPLES

    def _leaf(self, leaf: Leaf, notes: Notes) -> Vector | Samples:
        operator = leaf.operator
        if isinstance(operator, FetchSamples):
            return operator.fold(self._raw(leaf, guarded_of(leaf)), notes)
        if isinstance(operator, SeriesFragment):
            return operator.fold(self._fragment(leaf, operator), notes)
        if isinstance(operator, SampleOperator):
            return self._samples(leaf)
        raise TypeError(f"operator {operator.name} gives no series")

    def _samples(self, leaf: Leaf) -> Samples:
        picked = self._run.pick_points(leaf)
        if leaf.points is None or picked is None:
            return self._folded(leaf, self._run.pick_raw(leaf.scan))
        points = leaf.points
        parts = [(points.once, picked.once), (points.made, picked.made), (points.rows, picked.rows)]
        parts += zip(points.edges, picked.edges, strict=True)
        found = join_samples([self._folded(*part) for part in parts])
        self._run.count(Account(bytes_saved=picked.saved))  # now it is certain that rows need not be read
        return found

    def _folded(self, leaf: Leaf, pick: Pick) -> Samples:
        self._run.count(pick.account)
        if not isinstance(leaf.operator, SampleOperator):
            raise TypeError(f"operator {leaf.operator.name} gives no samples")
        return leaf.operator.fold(self._run.rows(leaf, pick))

    def _fragment(self, leaf: Leaf, fragment: SeriesFragment) -> list[Piece]:
        """Read the widest tier that gives the same results; if workers find that it does not, read samples."""
        if leaf.rollup is None or leaf.rollup.tier == RAW:
            return self._raw(leaf, guarded_of(leaf))
        tier, selection = leaf.rollup.tier, selection_of(leaf)
        now_ns, reach = self._run.options.now_ns, (selection.start, selection.end)
        key = RefusalKey(self._run.organization, fragment.text, tier)
        known = self._run.refusals.reason(key, reach, now_ns)
        if known and (pick := self._pick_if_unexpired(leaf)):
            return self._raw(leaf, TierChoice(RAW, None, known), pick)
        try:
            pick = self._run.pick_tiers(leaf, tier)
        except Unavailable:  # an earlier pick may still serve raw points
            return self._raw(leaf, TierChoice(RAW, None, "the index is unavailable, which knows where rollups are"))
        self._run.count(pick.account)
        self._reads.add(_read(leaf, fragment.tier_choice, pick, pick.tiles))
        all_raw = tuple(pick.tiles) == (RAW,)
        read = leaf if all_raw else over_windows(leaf, tier)
        pieces = self._run.pieces(read, pick, NO_TILES if all_raw else pick.tiles)
        untiered = [piece.value.reason for piece in pieces if isinstance(piece.value, Untiered)]
        if not untiered:
            return pieces
        self._run.refusals.add(key, reach, untiered[0], now_ns)
        return self._raw(leaf, TierChoice(RAW, None, untiered[0]))

    def _raw(self, leaf: Leaf, guarded: TierChoice, pick: Pick | None = None) -> list[Piece]:
        """Read samples, even if there are rollups."""
        pick = pick or self._run.pick_raw(leaf.scan)
        self._run.count(pick.account)
        self._reads.add(raw_read(leaf, guarded, pick))
        return self._run.pieces(leaf, pick)

    def _pick_if_unexpired(self, leaf: Leaf) -> Pick | None:
        """Pick raw points. Return None if some have expired or the index is unreachable: then windows may hold more."""
        try:
            pick = self._run.pick_raw(leaf.scan)
        except Unavailable:
            return None
        return pick if pick.expiry == NOTHING_EXPIRED else None


def raw_read(leaf: Leaf, guarded: TierChoice, pick: Pick) -> Read:
    times = selection_of(leaf).start, selection_of(leaf).end
    return _read(leaf, guarded, pick, {RAW: (times,)} if times[0] < times[1] else {})


def _read(leaf: Leaf, guarded: TierChoice, pick: Pick, tiles: Tiles) -> Read:
    """Return what is read for a leaf, and what of it has expired."""
    operator = leaf.operator
    if not isinstance(operator, SeriesFragment | FetchSamples):
        raise TypeError(f"operator {operator.name} gives no series")
    selection = selection_of(leaf)
    needed = clip_tiles(tiles, (selection.start, selection.end))
    missing = expired_points(needed, pick.expiry, guarded), unrolled_points(needed, pick.expiry)
    return Read(operator.text, guarded.tier, guarded.reason, tiles, *missing)


def _finish(plan: Plan) -> SeriesFinish:
    if not isinstance(plan.finish, SeriesFinish):
        raise TypeError(f"{plan.finish} gives no series")
    return plan.finish


def guarded_of(leaf: Leaf) -> TierChoice:
    """Return what the plan says about a leaf that is read raw."""
    operator = leaf.operator
    if isinstance(operator, SeriesFragment) and leaf.rollup and leaf.rollup.reason == operator.tier_choice.reason:
        return operator.tier_choice
    return TierChoice(RAW, None, leaf.rollup.reason if leaf.rollup else "")


def step_groups(steps: Steps, tick_ns: int) -> Iterator[Steps]:
    """Split the steps into groups that are computed one after the other."""
    length = _length(steps, tick_ns)
    start = steps.start
    while start <= steps.last:
        border = (start // length + 1) * length
        count = max(1, -(-(border - start) // steps.step))  # the steps before the border
        end = min(steps.last, start + (count - 1) * steps.step)
        yield Steps(start, end, steps.step)
        start = end + steps.step


def _length(steps: Steps, tick_ns: int) -> int:
    wanted = max(1, (steps.last - steps.start) // _GROUPS)
    return next((ns // tick_ns for ns in _LENGTHS_NS if ns // tick_ns >= wanted), _LENGTHS_NS[-1] // tick_ns)
