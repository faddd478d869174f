"""Which column of a record holds which field of a signal: as a mapping file says, else guessed by its name.

Comes in: the names of a record's columns. Goes out: a Plan, made once per set of names. Names are compared without
regard to case and to the signs `_ . - @ $` and spaces, so `trace_id`, `traceId` and `Trace.ID` are one name. Of several
columns that could be one field, the one whose name stands first in the list is taken; of equal names the first column.
All others stay attributes. docs/formats/inputs.md shows these lists to users.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from typing import NamedTuple

from lakerunner.pipeline.transcode.plausible import FILE_GRACE_NS
from lakerunner.pipeline.transcode.values import attribute_key

_SIGNS = str.maketrans("", "", "_.-@$ ")
# What a name may end with to say the unit of a time or duration.
SUFFIXES = {
    "unixnano": "ns",
    "nanos": "ns",
    "nano": "ns",
    "ns": "ns",
    "micros": "us",
    "us": "us",
    "millis": "ms",
    "ms": "ms",
    "seconds": "s",
    "secs": "s",
    "sec": "s",
}

_WHEN = ("timestamp", "time", "ts", "datetime", "eventtime", "date", "epoch", "realtimetimestamp")
_SERVICE = ("servicename", "service", "app", "application", "syslogidentifier")
_RESOURCE = ("resource", "resourceattributes")

Guesses = Mapping[str, tuple[str, ...]]
GUESSES: Mapping[str, Guesses] = {
    "logs": {
        "timestamp": _WHEN,
        "observed_timestamp": ("observedtimestamp", "observedtime"),
        "message": ("message", "msg", "log", "body", "line", "text", "textpayload", "jsonpayloadmessage"),
        "level": ("level", "severity", "lvl", "loglevel", "severitytext", "levelname"),
        "severity_number": ("severitynumber",),
        "trace_id": ("traceid",),
        "span_id": ("spanid",),
        "flags": ("traceflags", "flags"),
        "event_name": ("eventname",),
        "service": _SERVICE,
        "attributes": ("attributes",),
        "resource": _RESOURCE,
    },
    "metrics": {
        "name": ("name", "metricname", "metric"),
        "value": ("value", "metricvalue", "val"),
        "type": ("type", "metrictype", "kind"),
        "timestamp": _WHEN,
        "start": ("start", "starttime", "starttimestamp"),
        "unit": ("unit", "metricunit"),
        "description": ("description", "help"),
        "temporality": ("temporality", "aggregationtemporality"),
        "monotonic": ("monotonic", "ismonotonic"),
        "service": _SERVICE,
        "attributes": ("labels", "attributes", "tags", "dimensions"),
        "resource": _RESOURCE,
    },
    "traces": {
        "trace_id": ("traceid",),
        "span_id": ("spanid", "id"),
        "parent_span_id": ("parentspanid", "parentid"),
        "trace_state": ("tracestate",),
        "name": ("name", "spanname", "operationname", "operation"),
        "kind": ("kind", "spankind"),
        "start": ("start", "starttime", "starttimestamp", "timestamp", "time", "ts"),
        "end": ("end", "endtime", "endtimestamp"),
        "duration": ("duration", "elapsed"),
        "status": ("status", "statuscode"),
        "status_message": ("statusmessage",),
        "flags": ("traceflags", "flags"),
        "service": _SERVICE,
        "attributes": ("attributes", "tags"),
        "resource": _RESOURCE,
        "events": ("events",),
        "links": ("links",),
    },
}
# The fields that hold a time or duration: their columns may say a unit.
TIMES = ("timestamp", "observed_timestamp", "start", "end", "duration")

_MAX_NAMES = 200_000  # of all records' shapes that are remembered at once


class Plan(NamedTuple):
    """`at` gives the place of each field's column; `units` the unit that a time's column is known to have; `fields` all
    of it, as (field, place, unit or ""), in the order of GUESSES; `times` the places of times; `rest` the places of all
    other columns, and their keys as a KeyValue begins with them."""

    at: dict[str, int]
    units: dict[str, str]
    fields: tuple[tuple[str, int, str], ...]
    times: tuple[int, ...]
    rest: tuple[tuple[int, bytes], ...]


@dataclass(frozen=True)
class Columns:
    """How the columns of an object are read: what a mapping file says of the objects under its prefix, the column of a
    field and the unit of a time; and `near_ns`, when it was last modified: dates without a year lie near it. A time
    past `latest_ns` is noted."""

    names: Mapping[str, str] = field(default_factory=dict)
    units: Mapping[str, str] = field(default_factory=dict)
    near_ns: int | None = None
    latest_ns: int | None = None

    def near(self, ns: int, grace_ns: int = FILE_GRACE_NS) -> Columns:
        """Return the same for an object that was last modified at this time; its records may be that much newer."""
        return replace(self, near_ns=ns, latest_ns=ns + grace_ns)


GUESSED = Columns()


class Plans:
    """The plans of one signal's records, remembered by the names of their columns."""

    def __init__(self, signal: str, columns: Columns) -> None:
        self._columns = columns
        self._guesses = {name: found for name, found in _ranks(signal).items() if found.field not in columns.names}
        self._order = fields_of(signal)
        self._plans: dict[tuple[str, ...], Plan] = {}
        self._names = 0  # that are remembered

    def __call__(self, names: tuple[str, ...]) -> Plan:
        plan = self._plans.get(names)
        if plan is None:
            plan = self._planned(names)
            self._names += len(names) + 1
            if self._names > _MAX_NAMES:
                self._plans.clear()
                self._names = len(names) + 1
            if self._names <= _MAX_NAMES:
                self._plans[names] = plan
        return plan

    def _planned(self, names: tuple[str, ...]) -> Plan:
        at = {field: names.index(name) for field, name in self._columns.names.items() if name in names}
        units = dict(self._columns.units)
        best: dict[str, int] = {}
        for index, name in enumerate(names):
            guess = self._guesses.get(plain_name(name))
            if guess is None or index in at.values() or best.get(guess.field, guess.rank + 1) <= guess.rank:
                continue
            at[guess.field], best[guess.field] = index, guess.rank
            if guess.unit and guess.field not in self._columns.units:
                units[guess.field] = guess.unit
        taken = set(at.values())
        rest = ((index, attribute_key(name)) for index, name in enumerate(names) if index not in taken)
        return Plan(
            at,
            units,
            tuple((field, at[field], units.get(field, "")) for field in self._order if field in at),
            tuple(index for field, index in at.items() if field in TIMES),
            tuple(rest),
        )


def plain_name(name: str) -> str:
    return name.translate(_SIGNS).lower()


class _Guess(NamedTuple):
    field: str
    rank: int
    unit: str


@lru_cache
def _ranks(signal: str) -> dict[str, _Guess]:
    """Every name of the signal's lists. Where two fields list one name, the first field has it."""
    ranks: dict[str, _Guess] = {}
    for name, listed in GUESSES[signal].items():
        for rank, (word, unit) in enumerate(_spelled(name, listed)):
            ranks.setdefault(word, _Guess(name, rank, unit))
    return ranks


def _spelled(name: str, listed: Iterable[str]) -> Iterable[tuple[str, str]]:
    """The names of a field, those with a unit after those without."""
    listed = tuple(listed)
    yield from ((word, "") for word in listed)
    if name in TIMES:
        yield from ((word + suffix, unit) for suffix, unit in SUFFIXES.items() for word in listed)


def fields_of(signal: str) -> tuple[str, ...]:
    """What a mapping file can name."""
    return tuple(GUESSES[signal])


@dataclass(frozen=True)
class Mappings:
    """All sections of a mapping file: (prefix of raw keys, signal, columns)."""

    sections: tuple[tuple[str, str, Columns], ...] = ()

    @cached_property
    def _longest_first(self) -> list[tuple[str, str, Columns]]:
        return sorted(self.sections, key=lambda section: -len(section[0]))

    def of(self, key: str, signal: str) -> Columns:
        """The columns of this object: those of the longest prefix that has a section for the signal."""
        for prefix, name, columns in self._longest_first:
            if name == signal and key.startswith(prefix):
                return columns
        return GUESSED


NO_MAPPINGS = Mappings()
