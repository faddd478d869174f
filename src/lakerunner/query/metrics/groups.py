"""A range of steps, cut into groups that are worked out and handed on one after the other.

What always holds: groups follow each other without a gap and hold every step once; they begin at whole multiples of
their length since the epoch, but for the first, so that the same moment falls into the same group whenever it is asked
for.
"""

from __future__ import annotations

from collections.abc import Iterator

from lakerunner.series.values import Steps

_MINUTE = 60_000
_HOUR = 60 * _MINUTE
_DAY = 24 * _HOUR
_LENGTHS = (
    *(minutes * _MINUTE for minutes in (1, 5, 15, 30)),
    *(hours * _HOUR for hours in (1, 2, 6, 12)),
    *(days * _DAY for days in (1, 2, 7, 30, 365)),
)
_GROUPS = 12  # about so many: each costs a round through the workers


def in_groups(steps: Steps) -> Iterator[Steps]:
    length = _length(steps)
    start = steps.start
    while start <= steps.last:
        border = (start // length + 1) * length
        count = max(1, -(-(border - start) // steps.step))  # the steps before the border
        end = min(steps.last, start + (count - 1) * steps.step)
        yield Steps(start, end, steps.step)
        start = end + steps.step


def _length(steps: Steps) -> int:
    wanted = max(1, (steps.last - steps.start) // _GROUPS)
    return next((length for length in _LENGTHS if length >= wanted), _LENGTHS[-1])
