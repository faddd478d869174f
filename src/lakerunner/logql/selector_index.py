"""Find the selectors that a stream meets, among many.

Comes in: the matchers of selectors, then the labels of streams. Goes out: the numbers of the selectors. What always
holds: a selector is tested only where a label has one of the values that it requires, so that the cost of a stream
does not grow with the selectors that require others. A selector without such a label is tested for every stream.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from lakerunner.model.condition import regex_values
from lakerunner.model.labels.matcher import Matcher, Matchers, SelectorTest

_Pair = tuple[str, str]


class SelectorIndex:
    """Remembers the tests of selectors that it has needed. Not safe to use from several threads at once."""

    def __init__(self, selectors: Sequence[Matchers]) -> None:
        self._selectors = selectors
        self._tests: dict[Matchers, SelectorTest] = {}
        self._by_pair: dict[_Pair, list[int]] = {}
        self._others: list[int] = []
        for number, matchers in enumerate(selectors):
            required = [pairs for one in matchers if (pairs := _required_pairs(one))]
            if not required:
                self._others.append(number)
                continue
            # Labels such as the environment have one value in most selectors: choose what tells them apart.
            for pair in min(required, key=lambda pairs: sum(len(self._by_pair.get(pair, ())) for pair in pairs)):
                self._by_pair.setdefault(pair, []).append(number)

    def met_by(self, labels: Mapping[str, str]) -> list[int]:
        """Return the numbers of the selectors that a stream with these labels meets, in their order."""
        own = tuple(labels.items())
        found = [number for pair in own for number in self._by_pair.get(pair, ())]
        tested: dict[Matchers, bool] = {}
        return sorted(number for number in (*found, *self._others) if self._meets(number, own, tested))

    def _meets(self, number: int, labels: tuple[_Pair, ...], tested: dict[Matchers, bool]) -> bool:
        matchers = self._selectors[number]
        if matchers not in tested:
            if matchers not in self._tests:
                self._tests[matchers] = SelectorTest(matchers)
            tested[matchers] = self._tests[matchers](labels)
        return tested[matchers]


def _required_pairs(matcher: Matcher) -> Iterable[_Pair]:
    """Return the only labels of which a stream must have one to meet the matcher; none if others do."""
    if matcher.op == "=":
        values: tuple[str, ...] = (matcher.value,)
    elif matcher.op == "=~":
        values = regex_values(matcher.value)
    else:
        return ()
    return () if "" in values else [(matcher.name, value) for value in values]
