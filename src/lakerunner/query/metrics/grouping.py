"""Facets put into groups: those that make up one Prometheus series, or the series that differ in a further label alone.

Comes in: facets, by their numbers. Goes out: the groups, and of each facet its rank among all. What always holds:
groups are ordered by metric name, then by their smallest series digest; the facets of a group by stored series, as
segments order these, then by kind. It is the same on every worker.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from lakerunner.model.labels import Labels, value_of
from lakerunner.model.labels.metric_view import FURTHER_LABEL, SPREAD, Facet
from lakerunner.query.metrics.seen import Seen, Texts
from lakerunner.series.arrays import Ints

_Key = tuple[Labels, str | None]  # labels in common, and the further label of a spread group


class Grouping:
    """`rank` and `text` are by facet, as `chosen` has them: the facets of group n have the ranks
    firsts[n]:firsts[n + 1]. `text` is the value of a further label, as a number of `texts`, or -1."""

    def __init__(self, seen: Seen, chosen: Ints) -> None:
        self.texts: list[str] = []
        self.text = np.full(len(chosen), -1, np.int64)
        group, keys = self._grouped(seen, chosen)
        digests, metrics, metric = seen.digests[chosen], *_ranked(seen.metrics, seen.metric_of[chosen])
        self.metrics = tuple(metrics)
        least = np.full(len(keys), np.iinfo(np.int64).max)
        np.minimum.at(least, group, digests)
        name = np.zeros(len(keys), np.int64)
        name[group] = _ranked(seen.names, seen.name_of[chosen])[1]
        order = _in_order(name, least, keys)
        place = np.empty(len(keys), np.int64)
        place[order] = np.arange(len(keys))
        group = place[group]
        ordered = [keys[n] for n in order.tolist()]
        self.labels = [labels for labels, _ in ordered]
        self.spread = np.array([further is not None for _, further in ordered], bool)
        self.further = [further or "" for _, further in ordered]
        self.firsts: Ints = np.append(0, np.cumsum(np.bincount(group, minlength=len(keys))))
        self.rank = np.empty(len(chosen), np.int64)
        self.rank[np.lexsort((seen.kinds[chosen], digests, metric, group))] = np.arange(len(chosen))

    def _grouped(self, seen: Seen, chosen: Ints) -> tuple[Ints, list[_Key]]:
        """The group of each facet, and what each group has in common; in no order yet."""
        facets = [seen.facets[n] for n in chosen.tolist()]
        kinds = {facet.kind for facet in facets}
        if kinds & SPREAD and len(kinds) > 1:
            numbers: dict[_Key, int] = {}
            group = [numbers.setdefault(key, len(numbers)) for key in self._keys(facets)]
            return np.array(group, np.int64), list(numbers)
        further = facets[0].further if kinds & SPREAD else None
        firsts, of = alike([facet.labels for facet in facets], seen.hashes[chosen])
        return of, [(facets[n].labels, further) for n in firsts.tolist()]

    def _keys(self, facets: Sequence[Facet]) -> list[_Key]:
        """A facet that is one of the series of a spread group belongs to it."""
        spread = {(facet.labels, facet.further) for facet in facets if facet.kind in SPREAD}
        keys: list[_Key] = []
        codes: dict[str, int] = {}
        for n, facet in enumerate(facets):
            key: _Key = facet.labels, facet.further if facet.kind in SPREAD else None
            if key[1] is None:
                for further in ("", *FURTHER_LABEL.values()):
                    text = value_of(facet.labels, further)
                    if bool(text) != bool(further):
                        continue
                    base = tuple(pair for pair in facet.labels if pair[0] != further)
                    if (base, further) in spread:
                        key = base, further
                        self.text[n] = codes.setdefault(text, len(codes))
            keys.append(key)
        self.texts = list(codes)
        return keys


def alike(labels: Sequence[Labels], hashes: Ints) -> tuple[Ints, Ints]:
    """(first, of): label sets that are equal have the same number, the n-th of which is first that of first[n]. Equal
    ones have equal hashes; whether those of equal hashes are equal is looked at."""
    _, first, of = np.unique(hashes, return_index=True, return_inverse=True)
    again = np.flatnonzero(first[of] != np.arange(len(of)))
    if all(labels[n] == labels[at] for n, at in zip(again.tolist(), first[of[again]].tolist(), strict=True)):
        return first, of
    numbers: dict[Labels, int] = {}
    of = np.array([numbers.setdefault(one, len(numbers)) for one in labels], np.int64)
    return np.unique(of, return_index=True)[1], of


def _ranked(texts: Texts, numbers: Ints) -> tuple[list[str], Ints]:
    """The texts of these numbers in order, and the place of each number's text among them."""
    there, of = np.unique(numbers, return_inverse=True)
    found = texts.of(there)
    order = sorted(range(len(found)), key=found.__getitem__)
    place = np.empty(len(found), np.int64)
    place[order] = np.arange(len(found))
    return [found[n] for n in order], place[of]


def _in_order(name: Ints, least: Ints, keys: Sequence[_Key]) -> Ints:
    """By name, then the smallest digest; where that is the same, which is rare, by labels."""
    order = np.lexsort((least, name))
    same = np.flatnonzero((np.diff(name[order]) == 0) & (np.diff(least[order]) == 0))
    for run in np.split(same, np.flatnonzero(np.diff(same) > 1) + 1) if len(same) else ():
        own = slice(int(run[0]), int(run[-1]) + 2)
        order[own] = sorted(order[own].tolist(), key=lambda n: (keys[n][0], keys[n][1] or ""))
    return order
