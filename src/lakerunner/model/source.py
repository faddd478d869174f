"""A source object: one raw file of telemetry as it was sent, where it may lie, and what was found in it.

Bucket, key and etag are its identity everywhere: in messages, in the index, and for exactly-once. The path of a key
states its organization and signal; `Routes` reads them by the prefixes that settings name. What always holds: our own
segments are never raw, and what the push endpoints write is always found. Findings are bounded whatever the object
holds, so they go with the commit into the index and from there to people.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import cached_property

from lakerunner.model.display import plural
from lakerunner.model.errors import UserError
from lakerunner.model.organization import DEFAULT_COLLECTOR, DEFAULT_ORGANIZATION, NAME, checked_name
from lakerunner.model.time import DAY_NS, MINUTE_NS, SECOND_NS

RAW_PREFIX = "otel-raw/"
SEGMENT_PREFIX = "db/"
ROUTES_MAX = 100

# The names of model/signal.py's SIGNALS, which would bring pyarrow into every command that reads settings.
SIGNAL_NAMES = ("logs", "metrics", "traces")
# A file's name states its signal if it contains one of these words; otherwise it is taken for logs.
_SIGNAL_WORDS = (
    ("metrics", re.compile(r"(?<![a-z])metrics?(?![a-z])", re.I)),
    ("traces", re.compile(r"(?<![a-z])(traces?|spans?)(?![a-z])", re.I)),
)
_PLACEHOLDERS = {"{org}": "organization", "{collector}": "collector", "{signal}": "signal"}
_FIELDS = tuple(_PLACEHOLDERS.values())
_PART_PATTERNS = {
    "{org}": f"(?P<organization>{NAME.pattern})",
    "{collector}": f"(?P<collector>{NAME.pattern})",
    "{signal}": f"(?P<signal>{'|'.join(SIGNAL_NAMES)})",
}


_TOO_SHALLOW = re.compile(f"{RAW_PREFIX}(?:(?P<organization>{NAME.pattern})/)?(?P<file>[^/.][^/]*)", re.DOTALL)


class SourceState(StrEnum):
    """seen: announced, not yet committed. done: its rows are in segments. partial: done, except for lines that could
    not be read. failed: set aside with a reason. dismissed: it had failed, and nobody needs to look at it any more."""

    SEEN = "seen"
    DONE = "done"
    PARTIAL = "partial"
    FAILED = "failed"
    DISMISSED = "dismissed"


@dataclass(frozen=True, order=True)
class SourceObject:
    """The identity, the size in bytes, and the time of the last modification (ns)."""

    bucket: str
    key: str
    etag: str
    size: int
    modified_ns: int

    def __post_init__(self) -> None:
        if not self.bucket or not self.key or not self.etag:
            raise ValueError(f"a source object needs bucket, key and etag: {self}")
        if self.size < 0:
            raise ValueError(f"a size cannot be negative: {self}")

    @property
    def identity(self) -> tuple[str, str, str]:
        return (self.bucket, self.key, self.etag)


@dataclass(frozen=True)
class Route:
    """The organization, collector and signal of a raw key. `organization` is an id or a display name. `misplaced` says
    why the object cannot be taken from where it lies, and where it belongs: then it is set aside, and what its path
    does not name is empty."""

    organization: str
    collector: str
    signal: str
    misplaced: str = ""


@dataclass(frozen=True)
class Prefix:
    """One entry of the setting `routes`: a prefix of keys, and what holds for them.

    A part of `prefix` between slashes is fixed, or one of {org}, {collector}, {signal}, which reads that part of the
    key. What neither the path nor the entry states is the default organization, the default collector, and the signal
    that the file's name suggests.
    """

    prefix: str
    organization: str | None = None
    collector: str | None = None
    signal: str | None = None

    def __post_init__(self) -> None:
        parts = self._parts
        if not self.prefix.endswith("/") or "" in parts:
            raise UserError("prefix must end with '/' and have no empty part")
        if self.prefix.startswith(SEGMENT_PREFIX):
            raise UserError(f"prefix {SEGMENT_PREFIX} is reserved for segments")
        for part in parts:
            if ("{" in part or "}" in part) and part not in _PLACEHOLDERS:
                raise UserError(f"{part!r} is not a placeholder: use one of {', '.join(_PLACEHOLDERS)} as a whole part")
        for placeholder, name in _PLACEHOLDERS.items():
            if parts.count(placeholder) + (getattr(self, name) is not None) > 1:
                raise UserError(f"placeholder {name} appears twice")
        if self.signal not in (None, *SIGNAL_NAMES):
            raise UserError(f"unknown signal {self.signal!r}: use one of {', '.join(SIGNAL_NAMES)}")
        for kind in ("organization", "collector"):
            if (value := getattr(self, kind)) is not None:
                checked_name(kind, value)

    @cached_property
    def fixed(self) -> str:
        """Return what every key of it begins with."""
        return self.prefix.partition("{")[0]

    @property
    def shape(self) -> tuple[tuple[int, str], ...]:
        """Return a key that orders prefixes from vague to specific, and is equal for those that match the same keys.
        Part by part, a fixed word is more specific than {signal}, which is one of a few words, and that more than any
        name; then the longer prefix is more specific."""
        ranks = {"{org}": (0, ""), "{collector}": (0, ""), "{signal}": (1, "")}
        return tuple(ranks.get(part, (2, part)) for part in self._parts)

    def route_of(self, key: str) -> Route | None:
        """Return what the key states; None if it does not begin so, or has no valid name where one should stand."""
        found = self._pattern.fullmatch(key)
        if found is None:
            return None
        named = found.groupdict()
        return Route(
            named.get("organization") or self.organization or str(DEFAULT_ORGANIZATION.id),
            named.get("collector") or self.collector or DEFAULT_COLLECTOR,
            named.get("signal") or self.signal or signal_of(named["file"]),
        )

    @cached_property
    def _pattern(self) -> re.Pattern[str]:
        """Match whole keys: a listing tests every object with it. A file's name is not empty and not hidden."""
        parts = (_PART_PATTERNS.get(part) or re.escape(part) for part in self._parts)
        return re.compile("/".join(parts) + r"/(?:.*/)?(?P<file>[^/.][^/]*)", re.DOTALL)

    @property
    def _parts(self) -> list[str]:
        return self.prefix.removesuffix("/").split("/")


# Every push endpoint writes below this, so no setting may replace it.
PUSHED = Prefix(RAW_PREFIX + "{org}/{collector}/")
_DEFAULTS = (
    PUSHED,
    Prefix(RAW_PREFIX + "{signal}/"),
    *(Prefix(f"{signal}-raw/", signal=signal) for signal in SIGNAL_NAMES),
)


@dataclass(frozen=True)
class Routes:
    """Where raw objects are found: the entries of the setting and the defaults. Where several match a key, the most
    specific one decides (`Prefix.shape`), so the longest of fixed prefixes; an entry in the place of a default replaces
    it."""

    entries: tuple[Prefix, ...] = ()
    _ranked: tuple[Prefix, ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if len(self.entries) > ROUTES_MAX:
            raise UserError(f"{len(self.entries)} entries, the limit is {ROUTES_MAX}")
        chosen = {default.shape: default for default in _DEFAULTS}
        mine: set[tuple[tuple[int, str], ...]] = {PUSHED.shape}
        for number, entry in enumerate(self.entries, 1):
            if entry.shape in mine:
                whose = (
                    "pushed requests are stored there"
                    if entry.shape == PUSHED.shape
                    else "an earlier entry matches these keys"
                )
                raise UserError(f"entry {number} ({entry.prefix!r}) can never match: {whose}")
            mine.add(entry.shape)
            chosen[entry.shape] = entry
        ranked = tuple(chosen[shape] for shape in sorted(chosen, reverse=True))
        object.__setattr__(self, "_ranked", ranked)

    @staticmethod
    def parse(values: object) -> Routes:
        """Parse a list of tables, as a config file or JSON holds them. An error names the wrong entry."""
        if not isinstance(values, list):
            raise UserError('it must be a list of tables, each with a "prefix"')
        return Routes(tuple(_entry(number, value) for number, value in enumerate(values, 1)))

    @property
    def roots(self) -> tuple[str, ...]:
        """Return the prefixes that a listing must cover, none below another."""
        found = {entry.fixed for entry in self._ranked}
        return tuple(sorted(root for root in found if not any(root != up and root.startswith(up) for up in found)))

    def route_of(self, key: str) -> Route | None:
        """Return the route that a key's path states; None for a key that is not raw telemetry (our own segments,
        strays)."""
        if key.startswith(SEGMENT_PREFIX):
            return None
        for entry in self._ranked:
            if key.startswith(entry.fixed) and (route := entry.route_of(key)):
                return route
        return _misplaced(key)

    def __str__(self) -> str:
        return ", ".join(entry.prefix for entry in self.entries)


def _entry(number: int, value: object) -> Prefix:
    if not isinstance(value, dict) or not isinstance(value.get("prefix"), str):
        raise UserError(f'entry {number} is not a table with a "prefix"')
    where = f"entry {number} ({value['prefix']!r})"
    unknown = sorted(str(name) for name in value.keys() - {"prefix", *_FIELDS})
    if unknown:
        raise UserError(f"{where} has an unknown field {unknown[0]!r}: known fields are prefix, {', '.join(_FIELDS)}")
    if not all(isinstance(text, str) for text in value.values()):
        raise UserError(f"{where}: all values must be strings")
    try:
        return Prefix(**value)
    except UserError as error:
        raise UserError(f"{where}: {error}") from error


def _misplaced(key: str) -> Route | None:
    """Return the route of a file that lies in too few folders of ours to state its organization, or its collector."""
    found = _TOO_SHALLOW.fullmatch(key)
    if found is None:
        return None
    organization, name = found["organization"] or "", found["file"]
    where = "the folder of a collector" if organization else "the folders of an organization and a collector"
    place = f"{RAW_PREFIX}{organization or DEFAULT_ORGANIZATION.name}/files/{name}"
    return Route(organization, "", signal_of(name), f"{key!r} is not in {where}: move it, for example to {place!r}")


def signal_of(file_name: str) -> str:
    """Return the signal that a file's name suggests."""
    return signal_word(file_name)[0]


def signal_word(file_name: str) -> tuple[str, str]:
    """Return (signal, the word of the file's name that suggests it); without such a word it is logs."""
    for signal, pattern in _SIGNAL_WORDS:
        if found := pattern.search(file_name):
            return signal, found[0]
    return "logs", ""


# ---- findings: rejected lines, and notes on guesses

MAX_REJECTS = 100  # kept of one object; all are counted
MAX_NOTES = 16
MAX_EXCERPT = 200  # bytes of a rejected line
MAX_TEXT = 500  # characters of a reason or note


@dataclass(frozen=True)
class Reject:
    """A line that could not be read. `line` counts from 1; `offset` is the byte of the unpacked object at which it
    starts; `excerpt` is its beginning, with U+FFFD for what is not UTF-8."""

    line: int
    offset: int
    reason: str
    excerpt: str


@dataclass(frozen=True)
class Rejects:
    """`count` lines could not be read, out of `lines` that are not blank; `first` are the first of them in order."""

    count: int = 0
    lines: int = 0
    first: tuple[Reject, ...] = ()

    def __post_init__(self) -> None:
        if not len(self.first) <= self.count <= self.lines or len(self.first) > MAX_REJECTS:
            raise ValueError(f"{len(self.first)} rejects kept, {self.count} counted, {self.lines} lines")

    def __bool__(self) -> bool:
        return self.count > 0

    def __str__(self) -> str:
        if not self.first:
            return ""
        first = f"line {self.first[0].line}: {self.first[0].reason}"
        return first if self.count == 1 else f"{first}; {plural(self.count - 1, 'further bad line')}"


@dataclass(frozen=True)
class Note:
    """Something of an object that is done was guessed or left as it is: `count` records, the first at `line` (0 in
    formats that have no lines). `kind` is a short constant name, such as `no service`."""

    kind: str
    count: int
    line: int
    text: str


@dataclass(frozen=True)
class Findings:
    """All findings of one object. `rows` is the number of rows of segments that it gave; None if unknown."""

    rejects: Rejects = Rejects()
    notes: tuple[Note, ...] = ()
    rows: int | None = None

    def with_notes(self, notes: Iterable[Note]) -> Findings:
        """Add those of these notes whose kind is not noted yet, as far as there is room."""
        kinds = {note.kind for note in self.notes}
        new = (note for note in notes if note.kind not in kinds)
        return replace(self, notes=(*self.notes, *new)[:MAX_NOTES])


NO_FINDINGS = Findings()


# Kinds of notes on times of records that are probably wrong.
TOO_OLD, TOO_NEW = "time before 2000", "time in the future"
OLDEST_NS = 946_684_800 * SECOND_NS  # 2000-01-01T00:00:00Z
# How far past its object's modification a time may lie: clocks differ, and so do zones that a log does not state.
FILE_GRACE_NS = DAY_NS
PUSH_GRACE_NS = 10 * MINUTE_NS  # for a push, like Loki's creation_grace_period


def doubt(ns: int, latest_ns: int | None) -> str:
    """Return the kind of note that this time of a record deserves, "" if it is plausible. No time is too new where
    `latest_ns` is None. Such a record is kept and noted; push doors that answer as Loki does refuse it."""
    if ns < OLDEST_NS:
        return TOO_OLD
    return TOO_NEW if latest_ns is not None and ns > latest_ns else ""
