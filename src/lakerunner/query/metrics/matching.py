"""Which labels a selector's matchers mean, and in which form it sees what OTLP sent.

Regular expressions are RE2's and match a whole value, as in Prometheus; a label that is not there has the value "".
What always holds: each different value is matched once, however many series have it.
"""

from __future__ import annotations

from enum import StrEnum

import pyarrow as pa
import pyarrow.compute as pc

from lakerunner.model.labels import NAME, Labels, is_plain_label, is_plain_name
from lakerunner.plan.regex import compiled
from lakerunner.series.arrays import Bools
from lakerunner.series.expression import Matcher

Matchers = tuple[Matcher, ...]
_MOST_KNOWN = 100_000  # values of one matcher


class Form(StrEnum):
    """How OTLP's names are seen (docs/formats/prometheus.md)."""

    UTF8 = "utf8"
    ESCAPED = "escaped"


def form_of(matchers: Matchers) -> Form:
    """A selector that names a metric or a label as only the UTF-8 form has it sees that form."""
    odd = any(
        not is_plain_name(one.value) if one.name == NAME and one.op == "=" else not is_plain_label(one.name)
        for one in matchers
        if one.value or one.name != NAME
    )
    return Form.UTF8 if odd else Form.ESCAPED


def wanted_name(matchers: Matchers) -> str | None:
    """The one metric that they can mean, if they say so."""
    return next((one.value for one in matchers if one.name == NAME and one.op == "=" and one.value), None)


class LabelTest:
    """One matcher. Not to be used from several threads at once."""

    def __init__(self, matcher: Matcher) -> None:
        self.name = matcher.name
        self._wanted = matcher.value
        self._is_negated = matcher.op in ("!=", "!~")
        self._regex = compiled(matcher.value) if matcher.op in ("=~", "!~") else None
        self._known: dict[str, bool] = {}

    def __call__(self, value: str) -> bool:
        if self._regex is None:
            return (value == self._wanted) != self._is_negated
        found = self._known.get(value)
        if found is None:
            if len(self._known) > _MOST_KNOWN:
                self._known.clear()
            found = self._known[value] = self._regex.matches(value) != self._is_negated
        return found

    def each(self, values: pa.Array) -> Bools:
        """Test each of these texts."""
        if self._regex is None:
            wanted = pa.scalar(self._wanted.encode("utf-8", "surrogatepass"))  # half a surrogate pair is in no value
            found = pc.equal(values.cast(pa.binary()), wanted)
        else:
            found = self._regex.each(values)
        tested: Bools = (pc.invert(found) if self._is_negated else found).to_numpy(zero_copy_only=False)
        return tested


class Test:
    """All matchers of a selector."""

    def __init__(self, matchers: Matchers) -> None:
        self.tests = [LabelTest(matcher) for matcher in matchers]

    def of(self, name: str) -> list[LabelTest]:
        """Those about this label."""
        return [test for test in self.tests if test.name == name]

    def __call__(self, labels: Labels) -> bool:
        """Whether these labels are meant."""
        values = dict(labels)
        return all(test(values.get(test.name, "")) for test in self.tests)


def matches(labels: Labels, matchers: Matchers) -> bool:
    return Test(matchers)(labels)
