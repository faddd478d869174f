"""Parts of a regular expression in Python's syntax, with what must be known of a part before it is repeated."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from lakerunner.plan.vectors.regex_classes import Ranges, class_text, disjoint


@dataclass(frozen=True)
class Part:
    """`classes`: of all characters in it, in order. `unbounded`: there is a repetition without a bound inside.
    `first`, `last`: the character it always begins or ends with, alone. `repeats`: how often the most repeated thing
    inside is written out. `single`: one character, which can be repeated as it stands."""

    text: str
    classes: tuple[Ranges, ...] = ()
    unbounded: bool = False
    first: bool = False
    last: bool = False
    repeats: int = 1
    single: bool = False

    def inside(self, opening: str) -> Part:
        return replace(self, text=f"{opening}{self.text})", single=True)


def empty() -> Part:
    return Part("")


def one_of(ranges: Ranges) -> Part:
    return Part(class_text(ranges), (ranges,), first=True, last=True, single=True)


def standing(text: str) -> Part:
    """What is a place and no character."""
    return Part(text)


def sequence(parts: Sequence[Part]) -> Part:
    if len(parts) == 1:
        return parts[0]
    if not parts:
        return empty()
    return Part(
        "".join(part.text for part in parts),
        tuple(ranges for part in parts for ranges in part.classes),
        any(part.unbounded for part in parts),
        parts[0].first,
        parts[-1].last,
        max(part.repeats for part in parts),
    )


def alternatives(parts: Sequence[Part]) -> Part:
    if len(parts) == 1:
        return parts[0]
    return Part(
        "|".join(part.text for part in parts),
        tuple(ranges for part in parts for ranges in part.classes),
        any(part.unbounded for part in parts),
        repeats=max(part.repeats for part in parts),
    ).inside("(?:")


def repeated(part: Part, least: int, most: int | None, lazy: bool) -> Part | None:
    """None: a string could be cut into repetitions in exponentially many ways. It cannot where each begins or ends
    with a character that stands nowhere else in it."""
    if most is None and part.unbounded and not _delimited(part):
        return None
    if most is None:
        sign = {0: "*", 1: "+"}.get(least, f"{{{least},}}")
    else:
        sign = "?" if (least, most) == (0, 1) else f"{{{least},{most}}}"
    inner = part.text if part.single else f"(?:{part.text})"
    certain = least > 0 and part.single
    return Part(
        f"{inner}{sign}{'?' if lazy else ''}",
        part.classes,
        part.unbounded or most is None,
        certain and most == 1 and part.first,
        certain and most == 1 and part.last,
        part.repeats * max(least, most or 1, 1),
    )


def _delimited(part: Part) -> bool:
    for there, own, others in (
        (part.first, part.classes[:1], part.classes[1:]),
        (part.last, part.classes[-1:], part.classes[:-1]),
    ):
        if there and all(disjoint(own[0], other) for other in others):
            return True
    return False
