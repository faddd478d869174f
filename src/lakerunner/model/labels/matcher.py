"""Matchers: the conditions on labels that selectors are made of, and how they are tested.

Comes in: `{name="value"}` as a language read it (selector.py). Goes out: whether a value, a column of values or a set
of labels meets it. What always holds: regular expressions are RE2's and match a whole value, newlines included, as in
Prometheus; a label that is absent has the value ""; each different value is matched once, however many series have it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lakerunner.model.labels import Labels
from lakerunner.model.regex import compile_regex

Operator = Literal["=", "!=", "=~", "!~"]
OPERATORS: tuple[Operator, ...] = ("=", "!=", "=~", "!~")  # in the order of remote read's numbers for them
_MAX_KNOWN = 100_000  # values of one matcher


@dataclass(frozen=True, slots=True)
class Matcher:
    """`value` of =~ and !~ is a regular expression (RE2) that must match the whole label."""

    name: str
    op: Operator
    value: str

    @property
    def is_regex(self) -> bool:
        return self.op in ("=~", "!~")

    @property
    def is_negated(self) -> bool:
        return self.op in ("!=", "!~")


Matchers = tuple[Matcher, ...]


class LabelTest:
    """Test one matcher. Not safe to use from several threads at once."""

    def __init__(self, matcher: Matcher) -> None:
        self.name = matcher.name
        self._wanted = matcher.value
        self._is_negated = matcher.is_negated
        self._regex = compile_regex(matcher.value) if matcher.is_regex else None
        self._known: dict[str, bool] = {}

    def __call__(self, value: str) -> bool:
        if self._regex is None:
            return (value == self._wanted) != self._is_negated
        found = self._known.get(value)
        if found is None:
            if len(self._known) > _MAX_KNOWN:
                self._known.clear()
            found = self._known[value] = self._regex.matches(value) != self._is_negated
        return found

    def each(self, values: pa.Array) -> npt.NDArray[np.bool_]:
        """Test each of these texts."""
        if self._regex is None:
            wanted = pa.scalar(self._wanted.encode("utf-8", "surrogatepass"))  # no value contains half a surrogate pair
            found = pc.equal(values.cast(pa.binary()), wanted)
        else:
            found = self._regex.each(values)
        tested: npt.NDArray[np.bool_] = (pc.invert(found) if self._is_negated else found).to_numpy(zero_copy_only=False)
        return tested


class SelectorTest:
    """Test all matchers of a selector."""

    def __init__(self, matchers: Matchers) -> None:
        self.tests = [LabelTest(matcher) for matcher in matchers]

    def of(self, name: str) -> list[LabelTest]:
        """Return the tests of this label."""
        return [test for test in self.tests if test.name == name]

    def __call__(self, labels: Labels) -> bool:
        """Return whether these labels meet all matchers."""
        values = dict(labels)
        return all(test(values.get(test.name, "")) for test in self.tests)


def matches_empty(matcher: Matcher) -> bool:
    """Return whether a row or series without the label meets the matcher."""
    return LabelTest(matcher)("")
