"""info(): add the labels of info series (target_info and the like) to the series of the same instance and job.

The second argument selects the info series: its matchers of `__name__` choose the info metrics, the others choose info
series and name the labels to add; without any all labels are added. A base series keeps the labels that it has. One
without an info series stays as it is, unless a label was requested that must not be empty.

Info series are read at the time that the base vector's samples are from: if all its selectors have the same `@` and
offset, at that time. With several of them, or with a part that has no selector, at the time of the evaluation.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from lakerunner.model.errors import UserError
from lakerunner.model.labels import NAME, Labels, labels_of, labels_text, value_of
from lakerunner.model.labels.matcher import LabelTest, Matcher, matches_empty
from lakerunner.series.arrays import Bools, Ints
from lakerunner.series.expression import Call, Expression, Kind, Selector, Subquery, bare, parts, resolved
from lakerunner.series.function import Function, Invocation
from lakerunner.series.functions.arguments import VECTOR, float_samples, sample_times
from lakerunner.series.values import Vector, concatenate, merge_same_labels

KindOf = Callable[[Expression], Kind]


@dataclass(frozen=True)
class _Reference:
    """The `@` and offset of a selector, combined with those of the subqueries around it."""

    at: int | None
    offset: int

    def same_as(self, other: _Reference) -> bool:
        if self.at is None or other.at is None:
            return self == other
        return self.at - self.offset == other.at - other.offset


def shared_reference(expression: Expression, kind: KindOf) -> tuple[int | None, int]:
    """Return the common `@` (ms, None: the step's own time) and offset (ms) of all selectors."""
    references = _references(expression, kind, ())
    first = references[0]
    if first is None or any(one is None or not first.same_as(one) for one in references):
        return None, 0
    return first.at, first.offset


def _references(expression: Expression, kind: KindOf, around: tuple[Subquery, ...]) -> list[_Reference | None]:
    """Return the reference of each part that gives vectors, in order; None for a part without a selector."""
    if isinstance(expression, Selector):
        return [_reference(expression, around)]
    if isinstance(expression, Subquery):
        around = (*around, expression)
    inside = parts(expression)
    if isinstance(expression, Call) and expression.function == "info":
        inside = inside[:1]  # the second argument is written like a selector, but selects nothing by itself
    found = [
        reference
        for part in inside
        if kind(part) in (Kind.VECTOR, Kind.MATRIX)
        for reference in _references(part, kind, around)
    ]
    return found or [None]


def _reference(selector: Selector, around: tuple[Subquery, ...]) -> _Reference:
    """Combine references: offsets add up outwards until an `@` fixes the time."""
    at, offset = selector.at, resolved(selector.offset)
    for subquery in reversed(around):
        if at is not None:
            break
        at, offset = subquery.at, offset + resolved(subquery.offset)
    return _Reference(None if at is None else resolved(at), offset)


_TARGET_INFO = Matcher(NAME, "=", "target_info")
_ANY_INFO = Matcher(NAME, "=~", ".+_info")
_META = frozenset(r"\.+*?()|[]{}^$")

Identity = tuple[str, str]  # the values of instance and job, which identify the target of an info series
NOBODY: Identity = ("", "")


@dataclass(frozen=True)
class _InfoRequest:
    """What the second argument asks for."""

    names: tuple[Matcher, ...]  # on `__name__`: which metrics are info metrics
    labels: tuple[Matcher, ...]  # on other labels: which info series, and which of their labels

    def is_info(self, labels: Labels) -> bool:
        return all(LabelTest(matcher)(value_of(labels, NAME)) for matcher in self.names)

    def takes(self, name: str) -> bool:
        return name != NAME and (not self.labels or any(matcher.name == name for matcher in self.labels))

    @property
    def may_be_missing(self) -> bool:
        return all(matches_empty(matcher) for matcher in self.labels)


def _info(invocation: Invocation) -> Vector:
    arguments = invocation.call.arguments
    base = _evaluate_vector(invocation, arguments[0]).occupied()
    request = _parse_request(arguments[1:])
    enriched = np.array([not request.is_info(labels) for labels in base.labels], bool)
    identities = {_identity(labels) for labels, one in zip(base.labels, enriched, strict=True) if one} - {NOBODY}
    series = _info_series(invocation, request, identities)
    winners = _winners(series, np.any(base.present, axis=0))
    return _join(base, enriched, series, winners, request)


def _evaluate_vector(invocation: Invocation, expression: Expression) -> Vector:
    value = invocation.evaluation.evaluate(expression, invocation.steps)
    if not isinstance(value, Vector):
        raise TypeError(f"info of a {type(value).__name__}")
    return value


def _parse_request(arguments: Sequence[Expression]) -> _InfoRequest:
    selector = bare(arguments[0]) if arguments else None
    matchers = selector.matchers if isinstance(selector, Selector) else ()
    names = tuple(one for one in matchers if one.name == NAME)
    if not names:
        names = (_TARGET_INFO,)
    elif all(one.op in ("!=", "!~") for one in names):
        names = (_ANY_INFO, *names)
    return _InfoRequest(names, tuple(one for one in matchers if one.name != NAME))


def _identity(labels: Labels) -> Identity:
    return value_of(labels, "instance"), value_of(labels, "job")


# ---- which info series there are


def _info_series(invocation: Invocation, request: _InfoRequest, identities: Iterable[Identity]) -> Vector:
    """Fetch the info series that can belong to one of the identities, at the times that the base series are read. The
    values of those that compete with another are the times (s) of their samples."""
    at, offset = shared_reference(invocation.call.arguments[0], invocation.evaluation.kind)
    steps = len(invocation.steps)
    found = [Vector((), np.zeros((0, steps)), np.zeros((0, steps), bool))]
    for matchers in _identifying_matchers(identities):
        selector = Selector((*matchers, *request.labels, *request.names), offset=offset, at=at)
        samples = _evaluate_vector(invocation, selector)
        _check_floats(samples)
        if len({(_identity(labels), value_of(labels, NAME)) for labels in samples.labels}) < len(samples):
            # Times are needed only if two info series have the same name and identity: the newer one counts.
            samples = sample_times(invocation, selector, lambda samples: samples.times)
        found.append(samples)
    return concatenate(found)


def _identifying_matchers(identities: Iterable[Identity]) -> list[tuple[Matcher, ...]]:
    """Build one selector for identities with both labels, one for those without a job, one for those without an
    instance. No series meets two of them."""
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

Winners = dict[Identity, list[Ints]]  # for each info metric [steps]: the index of the info series, -1 for none


def _winners(series: Vector, looked_up: Bools) -> Winners:
    """Choose among info series of the same name and identity: the one with the newest sample counts."""
    rows: dict[tuple[Identity, str], Ints] = {}
    for number, labels in enumerate(series.labels):
        key = _identity(labels), value_of(labels, NAME)
        there = np.where(series.present[number] & looked_up, number, -1)
        rows[key] = _newer(series, rows[key], there) if key in rows else there
    winners: Winners = defaultdict(list)
    for (identity, _), winner in sorted(rows.items(), key=lambda item: item[0]):
        winners[identity].append(winner)
    return winners


def _newer(series: Vector, known: Ints, other: Ints) -> Ints:
    steps = np.arange(len(known))
    both = (known >= 0) & (other >= 0)
    before, after = series.values[known, steps], series.values[other, steps]
    for step in np.flatnonzero(both & (before == after)).tolist():
        one, new = (labels_text(series.labels[of[step]]) for of in (known, other))
        moment = round(before[step] * 1000)
        raise UserError(f"found duplicate series for info metric: existing {one} @ {moment}, new {new} @ {moment}")
    newer: Ints = np.where((known < 0) | (both & (after > before)), other, known)
    return newer


# ---- base series with what belongs to them


def _join(base: Vector, enriched: Bools, series: Vector, winners: Winners, request: _InfoRequest) -> Vector:
    """Join base series and info series. A base series becomes one series for each set of info series that belong to it
    at some step."""
    rows: list[int] = []
    labels: list[Labels] = []
    present: list[Bools] = []
    for row, own in enumerate(base.labels):
        there = base.present[row]
        chosen = np.array(winners.get(_identity(own), []), np.int64) if enriched[row] else np.zeros((0, 0), np.int64)
        for numbers, steps in _stretches(chosen, there):
            added = _add_labels(own, [series.labels[number] for number in numbers if number >= 0], request)
            if enriched[row] and max(numbers, default=-1) < 0 and not request.may_be_missing:
                continue
            rows.append(row)
            labels.append(added)
            present.append(steps)
    taken = base.rows(np.array(rows, np.int64))
    shown = np.array(present, bool).reshape(len(rows), base.present.shape[1])
    return merge_same_labels(Vector(labels, taken.values, shown, taken.histograms, taken.drop_name))


def _stretches(chosen: Ints, there: Bools) -> list[tuple[tuple[int, ...], Bools]]:
    """Return each set of info series that is chosen, and its steps."""
    if len(chosen) == 0:
        return [((), there)]
    sets, which = np.unique(chosen[:, there], axis=1, return_inverse=True)
    found = []
    for number in range(sets.shape[1]):
        steps = np.zeros(len(there), bool)
        steps[np.flatnonzero(there)[which.reshape(-1) == number]] = True
        found.append((tuple(sets[:, number].tolist()), steps))
    return found


def _add_labels(own: Labels, infos: Sequence[Labels], request: _InfoRequest) -> Labels:
    labels, known = dict(own), {name for name, _ in own}
    for info in infos:
        for name, value in info:
            if name in known or not request.takes(name):
                continue
            if labels.setdefault(name, value) != value:
                raise UserError(f"conflicting label: {name}")
    return labels_of(labels)


def _steady(call: Call, steady: Callable[[Expression], bool]) -> bool:
    """Return whether the first argument is steady and all its selectors look at one time. The second only looks like a
    selector."""
    of = call.arguments[0]
    return steady(of) and len(_moments(of)) == 1


def _moments(expression: Expression) -> set[object]:
    """Return the times that selectors look at."""
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
