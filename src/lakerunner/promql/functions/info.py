"""info(): labels of info series (target_info and the like) put onto the series of the same instance and job.

Which info series are looked at, the second argument says: matchers of `__name__` choose the info metrics, the others
choose info series and name the labels that are wanted; without any all labels are. A base series keeps the labels that
it has; one that no info series belongs to stays as it is, unless a label that must not be empty was wanted of it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from lakerunner.model.errors import UserError
from lakerunner.model.labels import NAME, Labels, labels_of, labels_text, value_of
from lakerunner.model.labels.matcher import LabelTest, Matcher, matches_empty
from lakerunner.promql.functions.arguments import VECTOR, float_samples
from lakerunner.promql.functions.info_reference import shared_reference
from lakerunner.series.arrays import Bools, Floats, Ints
from lakerunner.series.expression import Call, Expression, Selector, bare, parts
from lakerunner.series.function import Called, Function
from lakerunner.series.united import merged
from lakerunner.series.values import Vector

_TARGET_INFO = Matcher(NAME, "=", "target_info")
_ANY_INFO = Matcher(NAME, "=~", ".+_info")
_META = frozenset(r"\.+*?()|[]{}^$")

Identity = tuple[str, str]  # the values of instance and job, which say what an info series is about
NOBODY: Identity = ("", "")


@dataclass(frozen=True)
class _Wanted:
    names: tuple[Matcher, ...]  # which metrics are info metrics
    labels: tuple[Matcher, ...]  # what is wanted of them

    def is_info(self, labels: Labels) -> bool:
        return all(LabelTest(matcher)(value_of(labels, NAME)) for matcher in self.names)

    def takes(self, name: str) -> bool:
        return name != NAME and (not self.labels or any(matcher.name == name for matcher in self.labels))

    @property
    def may_be_missing(self) -> bool:
        return all(matches_empty(matcher) for matcher in self.labels)


def _info(called: Called) -> Vector:
    arguments = called.call.arguments
    base = _evaluated(called, arguments[0]).occupied()
    wanted = _wanted(arguments[1:])
    enriched = np.array([not wanted.is_info(labels) for labels in base.labels], bool)
    identities = {_identity(labels) for labels, one in zip(base.labels, enriched, strict=True) if one} - {NOBODY}
    series = _info_series(called, wanted, identities)
    winners = _winners(series, np.any(base.present, axis=0))
    return _combined(base, enriched, series, winners, wanted)


def _evaluated(called: Called, expression: Expression) -> Vector:
    value = called.evaluation.evaluate(expression, called.steps)
    if not isinstance(value, Vector):
        raise TypeError(f"info of a {type(value).__name__}")
    return value


def _wanted(arguments: Sequence[Expression]) -> _Wanted:
    selector = bare(arguments[0]) if arguments else None
    matchers = selector.matchers if isinstance(selector, Selector) else ()
    names = tuple(one for one in matchers if one.name == NAME)
    if not names:
        names = (_TARGET_INFO,)
    elif all(one.op in ("!=", "!~") for one in names):
        names = (_ANY_INFO, *names)
    return _Wanted(names, tuple(one for one in matchers if one.name != NAME))


def _identity(labels: Labels) -> Identity:
    return value_of(labels, "instance"), value_of(labels, "job")


# ---- which info series there are


@dataclass(frozen=True)
class _InfoSeries:
    """`times` [series, steps] are those of the samples (s), of those series that have a rival."""

    labels: Sequence[Labels]
    times: Floats
    present: Bools


def _info_series(called: Called, wanted: _Wanted, identities: Iterable[Identity]) -> _InfoSeries:
    """Those that can belong to one of the identities, at the moments that the base series are looked at."""
    at, offset = shared_reference(called.call.arguments[0], called.evaluation.kind)
    found: list[Vector] = []
    for matchers in _identifying_matchers(identities):
        selector = Selector((*matchers, *wanted.labels, *wanted.names), offset=offset, at=at)
        samples = _evaluated(called, selector)
        _check_floats(samples)
        if len({(_identity(labels), value_of(labels, NAME)) for labels in samples.labels}) < len(samples):
            # Only where two stand for the same does it matter which is newer.
            samples = _times(called, selector)
        found.append(samples)
    labels = [one for vector in found for one in vector.labels]
    nothing = np.zeros((0, len(called.steps)))
    values = np.concatenate([nothing, *(vector.values for vector in found)])
    present = np.concatenate([nothing.astype(bool), *(vector.present for vector in found)])
    return _InfoSeries(labels, values, present)


def _times(called: Called, selector: Selector) -> Vector:
    """As timestamp(), which would take the names off."""
    samples, index = called.evaluation.times_of(selector, called.steps)
    there = index >= 0
    seconds = np.zeros(index.shape)
    seconds[there] = samples.times[index[there]] / 1000
    return Vector(samples.labels, seconds, there)


def _identifying_matchers(identities: Iterable[Identity]) -> list[tuple[Matcher, ...]]:
    """One set for those that have both, for those without a job, for those without an instance: no series meets two."""
    groups: dict[tuple[bool, bool], list[Identity]] = defaultdict(list)
    for identity in sorted(identities):
        groups[identity[0] != "", identity[1] != ""].append(identity)
    return [
        tuple(_one_of(name, {identity[n] for identity in group}) for n, name in enumerate(("instance", "job")))
        for group in groups.values()
    ]


def _one_of(name: str, values: set[str]) -> Matcher:
    if len(values) == 1:
        return Matcher(name, "=", *values)
    return Matcher(name, "=~", "|".join(map(_quoted, sorted(values))))


def _quoted(text: str) -> str:
    return "".join(f"\\{character}" if character in _META else character for character in text)


def _check_floats(samples: Vector) -> None:
    wrong = np.any(samples.present & ~float_samples(samples), axis=1)
    for row in np.flatnonzero(wrong).tolist():
        raise UserError(f"this should be an info metric, with float samples: {labels_text(samples.labels[row])}")


# ---- which of them counts at each step

Winners = dict[Identity, list[Ints]]  # for each info metric [steps]: the number of the info series, -1 for none


def _winners(series: _InfoSeries, asked: Bools) -> Winners:
    """Of several info series with the same name and identity the one with the newest sample counts."""
    rows: dict[tuple[Identity, str], Ints] = {}
    for number, labels in enumerate(series.labels):
        key = _identity(labels), value_of(labels, NAME)
        there = np.where(series.present[number] & asked, number, -1)
        rows[key] = _newer(series, rows[key], there) if key in rows else there
    winners: Winners = defaultdict(list)
    for (identity, _), winner in sorted(rows.items(), key=lambda item: item[0]):
        winners[identity].append(winner)
    return winners


def _newer(series: _InfoSeries, known: Ints, other: Ints) -> Ints:
    steps = np.arange(len(known))
    both = (known >= 0) & (other >= 0)
    before, after = series.times[known, steps], series.times[other, steps]
    for step in np.flatnonzero(both & (before == after)).tolist():
        one, new = (labels_text(series.labels[of[step]]) for of in (known, other))
        moment = round(before[step] * 1000)
        raise UserError(f"found duplicate series for info metric: existing {one} @ {moment}, new {new} @ {moment}")
    newer: Ints = np.where((known < 0) | (both & (after > before)), other, known)
    return newer


# ---- base series with what belongs to them


def _combined(base: Vector, enriched: Bools, series: _InfoSeries, winners: Winners, wanted: _Wanted) -> Vector:
    """A base series is one series for each set of info series that belong to it at some step."""
    rows: list[int] = []
    labels: list[Labels] = []
    present: list[Bools] = []
    for row, own in enumerate(base.labels):
        there = base.present[row]
        chosen = np.array(winners.get(_identity(own), []), np.int64) if enriched[row] else np.zeros((0, 0), np.int64)
        for numbers, steps in _stretches(chosen, there):
            added = _added(own, [series.labels[number] for number in numbers if number >= 0], wanted)
            if enriched[row] and max(numbers, default=-1) < 0 and not wanted.may_be_missing:
                continue
            rows.append(row)
            labels.append(added)
            present.append(steps)
    taken = base.rows(np.array(rows, np.int64))
    shown = np.array(present, bool).reshape(len(rows), base.present.shape[1])
    return merged(Vector(labels, taken.values, shown, taken.histograms, taken.drop_name))


def _stretches(chosen: Ints, there: Bools) -> list[tuple[tuple[int, ...], Bools]]:
    """Each set of info series that is chosen, and the steps where it is."""
    if len(chosen) == 0:
        return [((), there)]
    sets, which = np.unique(chosen[:, there], axis=1, return_inverse=True)
    found = []
    for number in range(sets.shape[1]):
        steps = np.zeros(len(there), bool)
        steps[np.flatnonzero(there)[which.reshape(-1) == number]] = True
        found.append((tuple(sets[:, number].tolist()), steps))
    return found


def _added(own: Labels, infos: Sequence[Labels], wanted: _Wanted) -> Labels:
    labels, known = dict(own), {name for name, _ in own}
    for info in infos:
        for name, value in info:
            if name in known or not wanted.takes(name):
                continue
            if labels.setdefault(name, value) != value:
                raise UserError(f"conflicting label: {name}")
    return labels_of(labels)


def _steady(call: Call, steady: Callable[[Expression], bool]) -> bool:
    """As its first argument, if that is about one moment. The second is written like a selector, but it is none."""
    of = call.arguments[0]
    return steady(of) and len(_moments(of)) == 1


def _moments(expression: Expression) -> set[object]:
    """That selectors look at."""
    if isinstance(expression, Selector):
        return {(expression.at, expression.offset)}
    return {moment for part in parts(expression) for moment in _moments(part)}


INFO = (
    Function(
        "info",
        (VECTOR, VECTOR),
        VECTOR,
        _info,
        optional=1,
        keeps_name=True,
        per_series=False,
        experimental=True,
        lazy=True,
        steady=_steady,
    ),
)
