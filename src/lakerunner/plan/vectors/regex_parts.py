"""Parts of a regular expression: each in Python's syntax, with a bound on the ways Python may try it, and as a function
that finds all ends of it at once, which takes polynomial time whatever the pattern.

`bits` is the bound's logarithm, for values of 256 characters: 8 for a repetition without end, 1 for an option.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import combinations

from lakerunner.plan.vectors.regex_classes import Ranges, class_text, disjoint

_UNBOUNDED_BITS = 8.0
Ends = Callable[[str, frozenset[int]], frozenset[int]]  # text, where it may begin -> where it may end


@dataclass(frozen=True)
class Part:
    """`classes`: of all characters in it, in order. `first`, `last`: whether it always begins or ends with the first or
    last of them. `repeats`: how often the most repeated thing inside is written out. `single`: may be repeated as it
    stands."""

    text: str
    ends: Ends
    bits: float = 0.0
    classes: tuple[Ranges, ...] = ()
    first: bool = False
    last: bool = False
    repeats: int = 1
    single: bool = False

    def inside(self, opening: str) -> Part:
        return replace(self, text=f"{opening}{self.text})", single=True)


@lru_cache(maxsize=4096)
def one_of(ranges: Ranges) -> Part:
    def ends(text: str, starts: frozenset[int]) -> frozenset[int]:
        codes = ((at, ord(text[at])) for at in starts if at < len(text))
        return frozenset(at + 1 for at, code in codes if any(low <= code <= high for low, high in ranges))

    return Part(class_text(ranges), ends, classes=(ranges,), first=True, last=True, single=True)


def standing(text: str) -> Part:
    """What is a place and no character."""
    place = re.compile(text)
    return Part(text, lambda value, starts: frozenset(at for at in starts if place.match(value, at)))


def sequence(parts: Sequence[Part]) -> Part:
    def ends(text: str, starts: frozenset[int]) -> frozenset[int]:
        for part in parts:
            starts = part.ends(text, starts)
        return starts

    if len(parts) == 1:
        return parts[0]
    return Part(
        "".join(part.text for part in parts),
        ends,
        sum(part.bits for part in parts),
        tuple(ranges for part in parts for ranges in part.classes),
        bool(parts) and parts[0].first,
        bool(parts) and parts[-1].last,
        max((part.repeats for part in parts), default=1),
    )


def alternatives(parts: Sequence[Part]) -> Part:
    def ends(text: str, starts: frozenset[int]) -> frozenset[int]:
        return frozenset().union(*(part.ends(text, starts) for part in parts))

    if len(parts) == 1:
        return parts[0]
    chosen = 0.0 if _decided(parts) else math.log2(len(parts))
    return Part(
        "|".join(part.text for part in parts),
        ends,
        max(part.bits for part in parts) + chosen,
        tuple(ranges for part in parts for ranges in part.classes),
        repeats=max(part.repeats for part in parts),
    ).inside("(?:")


def repeated(part: Part, least: int, most: int | None, lazy: bool) -> Part:
    def ends(text: str, starts: frozenset[int]) -> frozenset[int]:
        for _ in range(least):
            starts = part.ends(text, starts)
        reached = new = starts
        left = len(text) + 1 if most is None else most - least
        while new and left > 0:
            new = part.ends(text, new) - reached
            reached |= new
            left -= 1
        return reached

    if most is None:
        sign = {0: "*", 1: "+"}.get(least, f"{{{least},}}")
    else:
        sign = "?" if (least, most) == (0, 1) else f"{{{least},{most}}}"
    inner = part.text if part.single else f"(?:{part.text})"
    once = (least, most) == (1, 1)
    return Part(
        f"{inner}{sign}{'?' if lazy else ''}",
        ends,
        _repeated_bits(part, least, most),
        part.classes,
        once and part.first,
        once and part.last,
        part.repeats * max(least, most or 1, 1),
    )


def _repeated_bits(part: Part, least: int, most: int | None) -> float:
    if most is not None:
        return part.bits * most + math.log2(most - least + 1)
    if part.bits == 0 or (part.bits <= _UNBOUNDED_BITS and _delimited(part)):
        return _UNBOUNDED_BITS
    return math.inf


def _delimited(part: Part) -> bool:
    """Whether it begins or ends with a character that stands nowhere else in it: a value can be cut into such parts in
    one way alone."""
    for there, own, others in (
        (part.first, part.classes[:1], part.classes[1:]),
        (part.last, part.classes[-1:], part.classes[:-1]),
    ):
        if there and all(disjoint(own[0], other) for other in others):
            return True
    return False


def _decided(parts: Sequence[Part]) -> bool:
    """Whether the first character says which of them it is."""
    if len(parts) > 64 or not all(part.first for part in parts):
        return False
    return all(disjoint(one.classes[0], other.classes[0]) for one, other in combinations(parts, 2))
