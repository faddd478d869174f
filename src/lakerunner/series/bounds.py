"""Limit how much an evaluation holds at once, and stop it when its client has left.

What always holds: the size of a matrix of series and steps is checked here before the matrix is allocated, so that a
query past the limit is refused before it takes the memory; a cancelled query ends at the next node of its tree.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from lakerunner.model.errors import TooLarge


def _never_cancelled() -> None:
    pass


@dataclass(frozen=True)
class Bounds:
    """The limits of one evaluation. `check` raises when the evaluation is to end."""

    max_points: int = 1 << 62
    check: Callable[[], None] = _never_cancelled

    def hold(self, series: int, steps: int) -> None:
        """Raise TooLarge if a matrix of this size is past the limit. A matrix without series counts its steps."""
        self.hold_points(max(series, 1) * steps)

    def hold_points(self, points: int) -> None:
        if points > self.max_points:
            raise too_many_samples(self.max_points)


def too_many_samples(most: int) -> TooLarge:
    return TooLarge(
        f"the query holds more than {most:,} samples at once (metrics_max_samples): "
        "select fewer series, a shorter range or a larger step"
    )
