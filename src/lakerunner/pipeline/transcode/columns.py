"""Which column of a record holds which field of a signal: named by a mapping file, else guessed by the column's name.

Comes in: the names of a record's columns. Goes out: a ColumnPlan, made once for each set of names. Names are compared
without case and without the signs `_ . - @ $` and spaces, so `trace_id`, `traceId` and `Trace.ID` are one name. Where
several columns could be one field, the name that is first in its list wins, and among equal names the first column. All
other columns stay attributes. docs/formats/inputs.md shows these lists to users.

Objects inside a record are flattened before fields are guessed: `{"http": {"status": 500}}` is a column `http.status`.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any, NamedTuple

from lakerunner.model.errors import UserError
from lakerunner.model.source import FILE_GRACE_NS
from lakerunner.pipeline.transcode.any_values import MAX_NESTING, Members, Unfit, attribute_key
from lakerunner.pipeline.transcode.times import UNITS

_SIGNS = str.maketrans("", "", "_.-@$ ")
# Endings of names that state the unit of a time or duration.
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
# The fields that hold a time or duration, whose columns may state a unit.
TIMES = ("timestamp", "observed_timestamp", "start", "end", "duration")

_MAX_NAMES = 200_000  # names of columns in all plans that are remembered at once


class ColumnPlan(NamedTuple):
    """Where the fields of a record are. `at` is the place of each field's column; `units` the unit of a time's column
    if it is known; `fields` both of them, as (field, place, unit or ""), in the order of GUESSES; `times` the places of
    times; `rest` the places of all other columns, with their encoded keys."""

    at: dict[str, int]
    units: dict[str, str]
    fields: tuple[tuple[str, int, str], ...]
    times: tuple[int, ...]
    rest: tuple[tuple[int, bytes], ...]


@dataclass(frozen=True)
class Columns:
    """How the columns of an object are read: the column of a field and the unit of a time, as a mapping file states
    them for the object's prefix; and `near_ns`, when the object was last modified, near which dates without a year lie.
    A time past `latest_ns` is noted."""

    names: Mapping[str, str] = field(default_factory=dict)
    units: Mapping[str, str] = field(default_factory=dict)
    near_ns: int | None = None
    latest_ns: int | None = None

    def near(self, ns: int, grace_ns: int = FILE_GRACE_NS) -> Columns:
        """Return the same for an object that was last modified at this time; its records may be newer by
        `grace_ns`."""
        return replace(self, near_ns=ns, latest_ns=ns + grace_ns)


GUESSED = Columns()


class ColumnPlans:
    """The plans of one signal's records, remembered by the names of their columns."""

    def __init__(self, signal: str, columns: Columns) -> None:
        self._columns = columns
        self._guesses = {name: found for name, found in _ranks(signal).items() if found.field not in columns.names}
        self._order = tuple(GUESSES[signal])
        self._plans: dict[tuple[str, ...], ColumnPlan] = {}
        self._names = 0  # that are remembered

    def __call__(self, names: tuple[str, ...]) -> ColumnPlan:
        plan = self._plans.get(names)
        if plan is None:
            plan = self._build_plan(names)
            self._names += len(names) + 1
            if self._names > _MAX_NAMES:
                self._plans.clear()
                self._names = len(names) + 1
            if self._names <= _MAX_NAMES:
                self._plans[names] = plan
        return plan

    def _build_plan(self, names: tuple[str, ...]) -> ColumnPlan:
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
        return ColumnPlan(
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
    """Return every name of the signal's lists. If two fields list the same name, the first field has it."""
    ranks: dict[str, _Guess] = {}
    for name, listed in GUESSES[signal].items():
        for rank, (word, unit) in enumerate(_spellings(name, listed)):
            ranks.setdefault(word, _Guess(name, rank, unit))
    return ranks


def _spellings(name: str, listed: Iterable[str]) -> Iterable[tuple[str, str]]:
    """Yield (name, unit) of a field, names without a unit first."""
    listed = tuple(listed)
    yield from ((word, "") for word in listed)
    if name in TIMES:
        yield from ((word + suffix, unit) for suffix, unit in SUFFIXES.items() for word in listed)


@dataclass(frozen=True)
class Mappings:
    """All sections of a mapping file: (prefix of raw keys, signal, columns)."""

    sections: tuple[tuple[str, str, Columns], ...] = ()

    @cached_property
    def _longest_first(self) -> list[tuple[str, str, Columns]]:
        return sorted(self.sections, key=lambda section: -len(section[0]))

    def columns_of(self, key: str, signal: str) -> Columns:
        """Return the columns of this object: those of its longest prefix that has a section for the signal."""
        for prefix, name, columns in self._longest_first:
            if name == signal and key.startswith(prefix):
                return columns
        return GUESSED


NO_MAPPINGS = Mappings()


# ---- objects inside records

# Characters that dotted names may repeat in one record: without a limit, one long name above many members would expand
# to far more than the file. A record past it keeps its objects.
MAX_REPEATED = 1 << 20

_WHOLE = ("attributes", "resource", "events", "links", "value")  # fields that take an object as it is
_BODIES = ("message", "msg", "body")  # names under which an object is the message as it is

NamedValues = tuple[tuple[str, ...], Sequence[Any]]


def unflattened_columns(plan: ColumnPlan, names: Sequence[str]) -> set[int]:
    """Return the places of the columns whose objects are not flattened."""
    places = {plan.at[field] for field in _WHOLE if field in plan.at}
    body = plan.at.get("message")
    return places | {body} if body is not None and plain_name(names[body]) in _BODIES else places


def has_objects(values: Sequence[Any]) -> bool:
    return any(type(value) is dict or type(value) is Members for value in values)


def flatten_objects(plan: ColumnPlan, names: tuple[str, ...], values: Sequence[Any]) -> NamedValues:
    """Return the record with its objects as columns with dotted names, except empty ones and `unflattened_columns`.
    Lists are kept. A name that results twice is kept twice; queries see the first. Raise Unfit if objects are nested
    too deep."""
    whole = unflattened_columns(plan, names)
    pairs: list[tuple[str, Any]] = []
    repeated = 0
    for index, (name, value) in enumerate(zip(names, values, strict=True)):
        if index in whole:
            pairs.append((name, value))
            continue
        repeated = _flatten(name, value, pairs, repeated)
        if repeated > MAX_REPEATED:
            return names, values
    return tuple(name for name, _ in pairs), [value for _, value in pairs]


def _flatten(name: str, value: Any, pairs: list[tuple[str, Any]], repeated: int, level: int = 0) -> int:
    """Append the leaves below this name; return the number of characters repeated so far. Stop past the limit."""
    members = value.items() if type(value) is dict else value if type(value) is Members else None
    if not members:
        pairs.append((name, value))
        return repeated
    if level == MAX_NESTING:
        raise Unfit(f"a value is nested deeper than {MAX_NESTING} levels")
    for key, member in members:
        repeated = _flatten(f"{name}.{key}", member, pairs, repeated + len(name), level + 1)
        if repeated > MAX_REPEATED:
            break
    return repeated


# ---- the mapping file

# TOML, read once at start; every error in it is reported then, with file, section and key:
#
#     ["otel-raw/acme/edge/".logs]        the prefix of raw keys, and the signal
#     timestamp = "when"                  a field, and the column that holds it
#     timestamp_unit = "ms"               s, ms, us or ns, for a time that is a number
_UNIT = "_unit"


def read_mapping_file(path: str) -> Mappings:
    """Read the mapping file; without a path there are no mappings. Raise UserError for what is wrong in it."""
    if not path:
        return Mappings()
    try:
        text = Path(path).expanduser().read_text()
    except OSError as error:
        raise UserError(f"cannot read mapping file {path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise UserError(f"mapping file {path} is not UTF-8: byte {error.start}") from error
    return parse_mappings(text, path)


def parse_mappings(text: str, name: str) -> Mappings:
    """Parse this text; `name` is the file's name in errors."""
    try:
        sections = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise UserError(f"mapping file {name} is not TOML: {error}") from error
    found = []
    for prefix, signals in sections.items():
        if not isinstance(signals, dict) or prefix in GUESSES:
            raise UserError(f'mapping file {name}, {prefix}: write a section as ["prefix of raw keys".logs]')
        for signal, entries in signals.items():
            where = f"mapping file {name}, section [{prefix!r}.{signal}]"
            if signal not in GUESSES or not isinstance(entries, dict):
                raise UserError(f"{where}: a section must end in one of {', '.join(GUESSES)}")
            found.append((prefix, signal, _columns(entries, signal, where)))
    return Mappings(tuple(found))


def _columns(entries: dict[str, Any], signal: str, where: str) -> Columns:
    fields = GUESSES[signal]
    units = {f"{field}{_UNIT}": field for field in fields if field in TIMES}
    for key, value in entries.items():
        if key not in fields and key not in units:
            near = get_close_matches(key, (*fields, *units), n=1)
            hint = f"did you mean {near[0]}?" if near else f"known keys: {', '.join((*fields, *units))}"
            raise UserError(f"{where}: unknown key {key}: {hint}")
        if not isinstance(value, str) or not value:
            raise UserError(f"{where}: {key} = {value!r} is not text")
        if key in units and value not in UNITS:
            raise UserError(f"{where}: {key} = {value!r} is not one of {', '.join(UNITS)}")
    names = {key: value for key, value in entries.items() if key in fields}
    twice = sorted(column for column in set(names.values()) if list(names.values()).count(column) > 1)
    if twice:
        fields_of_it = " and ".join(key for key, column in names.items() if column == twice[0])
        raise UserError(f"{where}: {fields_of_it} name the same column {twice[0]!r}")
    return Columns(names, {field: entries[key] for key, field in units.items() if key in entries})
