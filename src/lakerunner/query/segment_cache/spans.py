"""Sets of bytes or rows of a file as spans: half-open (start, end), sorted, without overlap or contact."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from itertools import pairwise

Span = tuple[int, int]


def joined(spans: Iterable[Span], gap: int = 0) -> list[Span]:
    """Return the spans in order, with those joined that have at most `gap` between them. Empty spans are dropped."""
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
    """Return what is in `spans` and not in `taken`, which is joined."""
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
    """Return whether any part of the span is in `taken`, which is joined."""
    place = _first_behind(taken, span[0])
    return place < len(taken) and taken[place][0] < span[1]


def size(spans: Iterable[Span]) -> int:
    """Return the total length of spans that do not overlap."""
    return sum(end - start for start, end in spans)


def fewer(spans: Sequence[Span], most: int) -> list[Span]:
    """Return at most `most` spans that cover these: the smallest gaps are closed."""
    if len(spans) <= most:
        return list(spans)
    gaps = sorted(after[0] - before[1] for before, after in pairwise(spans))
    return joined(spans, gaps[len(spans) - most - 1])


def _first_behind(taken: Sequence[Span], at: int) -> int:
    """Return the index of the first span that ends after this byte."""
    return bisect_left(taken, at + 1, key=lambda span: span[1])
