"""Choose the patterns to return for groups of lines, so that each finds its own lines with `|>`, and only those.

Comes in: groups of lines by fingerprint and level. Goes out: patterns with level and counts, the most frequent first.
What always holds: a group whose sampled lines another pattern finds is counted under that pattern, or that pattern is
not returned.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

from lakerunner.logql.log_patterns import GroupKey, LineGroup
from lakerunner.logql.pattern_text import CAPTURE, common_start, has_words, pattern_of, read_tokens
from lakerunner.logql.stages.pattern import filter_pattern

MAX_PATTERNS = 300
_MAX_CANDIDATES = 500  # each is compared with all others


class LinePatternCounts(NamedTuple):
    """A pattern, a level, and how many lines each interval has."""

    pattern: str
    level: str
    counts: dict[int, int]


@dataclass
class Candidate:
    """A pattern with the counts of each level, and lines that it must find."""

    text: str
    lines: list[str]
    levels: dict[str, Counter[int]] = field(default_factory=dict)

    @cached_property
    def fits(self) -> Callable[[str], bool]:
        return filter_pattern(self.text).fits

    @cached_property
    def literals(self) -> int:
        """Return the number of literal characters: a pattern with fewer finds more."""
        return len(self.text.replace(CAPTURE, ""))

    @cached_property
    def tokens(self) -> int:
        return len(read_tokens(self.lines[0]))

    @property
    def total(self) -> int:
        return sum(counts.total() for counts in self.levels.values())

    def finds(self, other: Candidate) -> bool:
        return all(map(self.fits, other.lines))

    def take(self, other: Candidate) -> None:
        for level, counts in other.levels.items():
            self.levels.setdefault(level, Counter()).update(counts)


def choose_patterns(groups: dict[GroupKey, LineGroup]) -> list[LinePatternCounts]:
    """Return at most MAX_PATTERNS patterns, each once for every level."""
    candidates = sorted(_candidates(groups), key=lambda one: (-one.total, one.text))[:_MAX_CANDIDATES]
    chosen = sorted(_disjoint(candidates), key=lambda one: (-one.total, one.text))[:MAX_PATTERNS]
    return [
        LinePatternCounts(one.text, level, dict(sorted(one.levels[level].items())))
        for one in chosen
        for level in sorted(one.levels, key=lambda level: (-one.levels[level].total(), level))
    ]


def _candidates(groups: dict[GroupKey, LineGroup]) -> Iterable[Candidate]:
    """Return a pattern for each fingerprint. Groups that differ only by level share it."""
    shared: dict[tuple[int, bool], list[tuple[str, LineGroup]]] = {}
    for key, group in groups.items():
        shared.setdefault((key.fingerprint, key.is_odd), []).append((key.level, group))
    by_text: dict[str, Candidate] = {}
    for (_, is_odd), members in shared.items():
        lines = [line for _, group in members for line in group.lines]
        prefix = ""
        if not is_odd:
            low, high = min(group.low for _, group in members), max(group.high for _, group in members)
            lines, prefix = [low, high, *lines], common_start(low, high)
        if lines:
            text = pattern_of(lines, prefix)
            one = by_text.setdefault(text, Candidate(text, list(dict.fromkeys(lines))))
            one.take(Candidate(text, [], {level: group.counts for level, group in members}))
    return by_text.values()


def _disjoint(candidates: list[Candidate]) -> list[Candidate]:
    """Join or leave out patterns that find lines of others. A pattern takes in those of its own shape, where it has a
    variable and they a word. Others it takes in only if they are rarer: one short line would otherwise hide all that
    the longer ones say."""
    waiting = sorted(candidates, key=lambda one: (one.literals, one.text))  # those that find most come first
    kept: list[Candidate] = []
    while waiting:
        one, *waiting = waiting
        found = [other for other in waiting if one.finds(other)]
        of_other_shape = sum(other.total for other in found if other.tokens != one.tokens)
        if found and (of_other_shape > one.total or not has_words(one.text)):
            continue
        for other in found:
            one.take(other)
        taken = set(map(id, found))
        waiting = [other for other in waiting if id(other) not in taken]
        kept.append(one)
    return kept
