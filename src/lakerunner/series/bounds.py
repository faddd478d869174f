"""How much an evaluation may hold at once, and whether it is still wanted.

What always holds: matrices of series and steps are looked at here before they are made, so that a query past the limit
is refused before it takes the memory; a query that no one waits for any more ends at the next node of its tree.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from lakerunner.model.errors import TooLarge


def _wanted() -> None:
    pass


@dataclass(frozen=True)
class Bounds:
    """`check` raises where the evaluation is to end."""

    max_points: int = 1 << 62
    check: Callable[[], None] = _wanted

    def hold(self, series: int, steps: int) -> None:
        """TooLarge if a matrix of these is more than may be held. One without series has its steps all the same."""
        self.hold_points(max(series, 1) * steps)

    def hold_points(self, points: int) -> None:
        if points > self.max_points:
            raise too_many_samples(self.max_points)


def too_many_samples(most: int) -> TooLarge:
    return TooLarge(
        f"the query holds more than {most:,} samples at once (metrics_max_samples): "
        "select fewer series, a shorter range or a larger step"
    )
