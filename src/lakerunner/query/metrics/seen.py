"""The facets of an organization's series in one form, in columns: so that matchers look at each different value once,
and a layout is worked out over arrays.

Comes in: stored series, as they become known. Goes out: which facets some matchers mean. What always holds: facets are
in the order of their series' numbers, and what is known of one never changes. A column is made of a label that is asked
about, for one metric's name or for all, and only while there is room for it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import pyarrow as pa

from lakerunner.model.labels import NAME, value_of
from lakerunner.model.labels.matcher import LabelTest, Matchers, SelectorTest
from lakerunner.model.labels.metric_view import Facet, Form, StoredSeries, facets, form_of, wanted_name
from lakerunner.query.kept import Kept
from lakerunner.series.arrays import Bools, Ints

_COLUMNS = 64 << 20  # bytes of them, for each form
_NONE: Ints = np.zeros(0, np.int64)


class Texts:
    """Each text once, with its number."""

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}

    def numbers(self, texts: Iterable[str]) -> list[int]:
        return [self._numbers.setdefault(text, len(self._numbers)) for text in texts]

    def number(self, text: str) -> int | None:
        return self._numbers.get(text)

    def of(self, numbers: Ints) -> list[str]:
        every = list(self._numbers)
        return [every[number] for number in numbers.tolist()]


class Seen:
    """Arrays are by facet: the number of its series, with its digest, whether it is a delta, and the metric as it came
    (of `metrics`); its kind, its name (of `names`), and a hash of its labels."""

    def __init__(self, form: Form) -> None:
        self.facets: list[Facet] = []
        self.metrics, self.names = Texts(), Texts()
        self.series, self.digests, self.metric_of = _NONE, _NONE, _NONE
        self.kinds, self.name_of, self.hashes = _NONE, _NONE, _NONE
        self.deltas: Bools = np.zeros(0, bool)
        self._by_name: dict[int, Ints] = {}
        self._columns: Kept[pa.DictionaryArray] = Kept(_COLUMNS)
        self._form = form
        self._upto = 0

    def extend(self, series: Sequence[StoredSeries]) -> None:
        if self._upto == len(series):
            return
        new, own = [], []
        for number in range(self._upto, len(series)):
            for facet in facets(series[number], self._form):
                new.append(facet)
                own.append(number)
        self._upto = len(series)
        if not new:  # entries of metadata are no series
            return
        stored = [series[number] for number in own]
        names = np.array(self.names.numbers(value_of(facet.labels, NAME) for facet in new), np.int64)
        order = np.argsort(names, kind="stable")
        there, first = np.unique(names[order], return_index=True)
        for name, places in zip(there.tolist(), np.split(len(self.facets) + order, first[1:]), strict=True):
            self._by_name[name] = np.append(self._by_name.get(name, _NONE), places)
        self.facets += new
        self.name_of = np.append(self.name_of, names)
        self.series = _longer(self.series, own)
        self.digests = _longer(self.digests, [one.digest for one in stored])
        self.metric_of = _longer(self.metric_of, self.metrics.numbers(one.metric for one in stored))
        self.deltas = np.append(self.deltas, np.array([one.delta for one in stored], bool))
        self.kinds = _longer(self.kinds, [facet.kind for facet in new])
        self.hashes = _longer(self.hashes, [hash(facet.labels) for facet in new])

    def named(self, name: str | None) -> Ints:
        """The facets of this metric's name, or all."""
        if name is None:
            return np.arange(len(self.facets))
        number = self.names.number(name)
        return _NONE if number is None else self._by_name[number]

    def values(self, name: str | None, label: str, begin: int) -> pa.DictionaryArray:
        """The label's value in each of the facets of `named(name)` from that place on; none where the label tells the
        series of the facet apart."""
        places = self.named(name)
        key = name, label, begin, len(places)
        found = self._columns.get(key)
        if found is None:
            own = (self.facets[n] for n in places[begin:].tolist())
            values = [None if facet.further == label else value_of(facet.labels, label) for facet in own]
            found = pa.array(values, pa.string()).dictionary_encode()
            self._columns.put(key, found, found.nbytes + 200)
        return found


class Matched:
    """The facets that some matchers mean, ascending. What they say of `le` and `quantile` does not count yet where
    these tell the series of a facet apart."""

    def __init__(self, matchers: Matchers) -> None:
        self.form = form_of(matchers)
        self.found = _NONE
        self._tests = SelectorTest(matchers).tests
        self._name = wanted_name(matchers)
        self._upto = 0

    def extend(self, seen: Seen) -> None:
        places = seen.named(self._name)
        if self._upto == len(places):
            return
        chosen = np.ones(len(places) - self._upto, bool)
        for test in self._tests:
            chosen &= _meant(test, seen.values(self._name, test.name, self._upto))
        self.found = np.append(self.found, places[self._upto :][chosen])
        self._upto = len(places)


def _meant(test: LabelTest, values: pa.DictionaryArray) -> Bools:
    """Of each value; where there is none it is not asked for."""
    meant = np.append(test.each(values.dictionary), True)
    codes: Ints = values.indices.fill_null(len(meant) - 1).to_numpy(zero_copy_only=False)
    found: Bools = meant[codes]
    return found


def _longer(array: Ints, by: Sequence[int]) -> Ints:
    return np.append(array, np.array(by, np.int64))
