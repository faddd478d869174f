"""Sets of bytes of a file, or of its rows: half-open spans (start, end), sorted, none touching the next."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from itertools import pairwise

Span = tuple[int, int]


def joined(spans: Iterable[Span], gap: int = 0) -> list[Span]:
    """These spans in order; those with at most `gap` between them are one. Empty spans are none."""
    found: list[Span] = []
    for start, end in sorted(spans):
        if start >= end:
            continue
        if found and start <= found[-1][1] + gap:
            found[-1] = found[-1][0], max(end, found[-1][1])
        else:
            found.append((start, end))
    return found


def without(spans: Iterable[Span], taken: Sequence[Span]) -> list[Span]:
    """What of these spans is not in `taken`, which is joined."""
    if not taken:
        return joined(spans)
    left = []
    for start, end in joined(spans):
        at = start
        for other in taken[_first_behind(taken, start) :]:
            if other[0] >= end:
                break
            left.append((at, other[0]))
            at = max(at, other[1])
        left.append((at, end))
    return [span for span in left if span[0] < span[1]]


def overlaps(span: Span, taken: Sequence[Span]) -> bool:
    """Whether any of the span is in `taken`, which is joined."""
    place = _first_behind(taken, span[0])
    return place < len(taken) and taken[place][0] < span[1]


def size(spans: Iterable[Span]) -> int:
    """Of spans that do not overlap."""
    return sum(end - start for start, end in spans)


def fewer(spans: Sequence[Span], most: int) -> list[Span]:
    """At most so many spans that cover these: the smallest gaps are closed."""
    if len(spans) <= most:
        return list(spans)
    gaps = sorted(after[0] - before[1] for before, after in pairwise(spans))
    return joined(spans, gaps[len(spans) - most - 1])


def _first_behind(taken: Sequence[Span], at: int) -> int:
    """The place of the first span that ends behind this byte."""
    return bisect_left(taken, at + 1, key=lambda span: span[1])
