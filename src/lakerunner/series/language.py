"""What a language supplies to the evaluator: its functions, how its selectors see samples, the texts of its notes.

A language fills one `Language`, beside its parser. What it leaves out has the plainest meaning: every sample counts, no
selector looks beyond its range, nothing is noted.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from lakerunner.series.arrays import Ints
from lakerunner.series.expression import Selector
from lakerunner.series.function import Function
from lakerunner.series.notes import Notes, Words
from lakerunner.series.rollups import RollupSeries
from lakerunner.series.values import Samples, Vector


@dataclass(frozen=True)
class Instants:
    """How a language sees the samples of an instant selector.

    `lookback`: how far back, unless the query sets another. `value` takes the selector, its samples, the times that
    steps look at (ascending), the lookback and the notes. `places` returns the index of the sample that counts at each
    time, -1 for none. `of_rollups` returns what an instant selector can see of rollups, as samples."""

    lookback: int
    value: Callable[[Selector, Samples, Ints, int, Notes], Vector]
    places: Callable[[Samples, Ints, int], Ints]
    of_rollups: Callable[[RollupSeries], Samples]


@dataclass(frozen=True)
class Language:
    """`words`: the text of its note for each misfit; misfits without a text are not noted. `subquery_step`: the default
    step of a subquery. `instants` is None if the language has no instant selectors. `ranged`: selects the samples of a
    selector that count in ranges. `reach`: how far a selector looks, given the lookback, before the beginning of its
    range and after the time of the step. `tick_ns`: the length of a tick (docs/decisions/0018)."""

    functions: Mapping[str, Function]
    tick_ns: int = 1
    words: Words = field(default_factory=dict)
    subquery_step: int = 0
    instants: Instants | None = None
    ranged: Callable[[Selector, Samples], Samples] = lambda _, samples: samples
    reach: Callable[[Selector, int], tuple[int, int]] = lambda *_: (0, 0)

    @property
    def instant_selectors(self) -> Instants:
        if self.instants is None:
            raise TypeError("the language has no instant selectors")
        return self.instants

    @property
    def lookback(self) -> int:
        return 0 if self.instants is None else self.instants.lookback
