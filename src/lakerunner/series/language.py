"""What a language gives the evaluator: its functions, how its selectors look at samples, its words for what is found.

A language fills one `Language`, beside its parser. What it leaves out has the plainest meaning there is: every sample
counts, no selector looks beyond its range, nothing is noted.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from lakerunner.series.arrays import Ints
from lakerunner.series.expression import Selector
from lakerunner.series.function import Function
from lakerunner.series.notes import Notes, Words
from lakerunner.series.rolled import Rolled
from lakerunner.series.values import Samples, Vector


def _every_sample(_selector: Selector, samples: Samples) -> Samples:
    return samples


def _no_further(_selector: Selector, _lookback: int) -> tuple[int, int]:
    return 0, 0


@dataclass(frozen=True)
class Instants:
    """How a language looks at the samples of an instant selector. `lookback`: how far back, where the query names no
    other. `value` takes the selector, its samples, the moments that steps look at (ascending), the lookback and the
    notes. `places` gives the place of the sample that counts at each moment, -1 for none. `of_windows` gives what an
    instant selector can see of rollups, as samples."""

    lookback: int
    value: Callable[[Selector, Samples, Ints, int, Notes], Vector]
    places: Callable[[Samples, Ints, int], Ints]
    of_windows: Callable[[Rolled], Samples]


@dataclass(frozen=True)
class Language:
    """`words`: its note for each misfit; it has none for those that are missing. `subquery_step`: the step of a
    subquery that names none. `instants` is None if it has no instant selectors. `ranged`: which samples of a selector
    count in ranges. `reach`: how far a selector looks, given the lookback, before the beginning of its range and behind
    the moment of the step."""

    functions: Mapping[str, Function]
    words: Words = field(default_factory=dict)
    subquery_step: int = 0
    instants: Instants | None = None
    ranged: Callable[[Selector, Samples], Samples] = _every_sample
    reach: Callable[[Selector, int], tuple[int, int]] = _no_further

    @property
    def instant_selectors(self) -> Instants:
        if self.instants is None:
            raise TypeError("the language has no instant selectors")
        return self.instants

    @property
    def lookback(self) -> int:
        return 0 if self.instants is None else self.instants.lookback
