"""Find the fields of sampled lines: metadata, labels that the query parsed, and what json or logfmt finds in a line.

Comes in: lines with their labels by kind, in the order of Loki's answer. Goes out: fields with type, number of values,
parsers and the path in JSON; or the values of one field. What always holds: a line is read as JSON and, if that fails,
as logfmt; a name that the stream has gets the suffix `_extracted`. Counts are exact, where Loki estimates them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

import orjson

from lakerunner.logql.stages.json_parser import MAX_DEPTH
from lakerunner.logql.stages.line_labels import ERROR, ERROR_DETAILS, EXTRACTED, PRESERVE_ERROR, LineLabels
from lakerunner.logql.stages.parsed import label_name, nested_label_name
from lakerunner.logql.stages.pipeline import compile_stages
from lakerunner.logql.text.amounts import bytes_text, parse_bytes, parse_duration, parse_float
from lakerunner.logql.text.syntax import Json, Logfmt

JSON, LOGFMT = "json", "logfmt"
Path = tuple[str, ...]
_ERRORS = frozenset((ERROR, ERROR_DETAILS, PRESERVE_ERROR))
_INTEGER = re.compile("[+-]?[0-9]{1,19}", re.ASCII)
_INT64 = 1 << 63
_BOOLEANS = frozenset(("1", "t", "T", "TRUE", "true", "True", "0", "f", "F", "FALSE", "false", "False"))
_SIZE_UNIT = re.compile("(?:[kmgtpe]i?)?b|[kmgtpe]i?", re.IGNORECASE)


class SampledLine(NamedTuple):
    """A line of an answer with its labels by kind."""

    line: str
    stream: Mapping[str, str]
    metadata: Mapping[str, str]
    parsed: Mapping[str, str]


class LineFields(NamedTuple):
    """What was found in one line: the values of each field, the parser that read it, and paths in JSON by field."""

    values: Mapping[str, tuple[str, ...]]
    parser: str
    paths: Mapping[str, Path]


@dataclass
class DetectedField:
    type: str = "string"
    values: set[str] = field(default_factory=set)
    parsers: list[str] = field(default_factory=list)
    path: Path = ()

    def add(self, values: Iterable[str]) -> None:
        """Count the values of one line; the last line decides the type, as in Loki."""
        for value in values:
            self.type = type_of(value)
            self.values.add(value)


def detect_fields(lines: Iterable[SampledLine], limit: int) -> dict[str, DetectedField]:
    """Return the first `limit` fields, by name."""
    found: dict[str, DetectedField] = {}

    def field_named(name: str) -> DetectedField | None:
        if name not in found and len(found) < limit:
            found[name] = DetectedField()
        return found.get(name)

    read = LineReader()
    for line in lines:
        for name, value in line.metadata.items():
            if one := field_named(name):
                one.add((value,))
        own = read(line)
        for name, values in own.values.items():
            if one := field_named(name):
                one.add(values)
                one.path = own.paths.get(name, one.path)
                if own.parser not in one.parsers:
                    one.parsers.append(own.parser)
    return found


def detect_values(lines: Iterable[SampledLine], name: str, limit: int) -> list[str]:
    """Return the first `limit` values of a field, sorted. Parsed sizes are written as a query takes them."""
    found: dict[str, None] = {}
    read = LineReader()
    for line in lines:
        values = [line.metadata[name]] if name in line.metadata else []
        values += map(_as_written_in_queries, read(line).values.get(name, ()))
        found |= dict.fromkeys(values)
        if len(found) >= limit:
            break
    return sorted(list(found)[:limit])


class LineReader:
    """Parses lines by json, or else by logfmt."""

    def __init__(self) -> None:
        self._json = compile_stages((Json(),))
        self._logfmt = compile_stages((Logfmt(),))

    def __call__(self, sampled: SampledLine) -> LineFields:
        given = {name: value for name, value in sampled.parsed.items() if name not in _ERRORS}
        parser, labels = JSON, LineLabels(sampled.stream, {})
        self._json.process(0, sampled.line, labels)
        if labels.error:
            parser, labels = LOGFMT, LineLabels(sampled.stream, {})
            self._logfmt.process(0, sampled.line, labels)
        parsed = labels.by_kind()[2]
        found = {
            name: tuple(dict.fromkeys(one[name] for one in (given, parsed) if name in one)) for name in given | parsed
        }
        return LineFields(found, parser, _paths(sampled.line, found) if parser == JSON else {})


def _paths(line: str, names: Iterable[str]) -> dict[str, Path]:
    """Return the keys that lead to each of these labels in a line of JSON."""
    try:
        members = orjson.loads(line)
    except orjson.JSONDecodeError:  # the parser is more lenient than JSON is; such a line has no paths
        return {}
    places: dict[str, Path] = {}
    for path in _walk(members, ()):
        name = label_name(path[0]) if len(path) == 1 else nested_label_name(path)
        places.setdefault(name, path)
        places.setdefault(name + EXTRACTED, path)
    return {name: places[name] for name in names if name in places}


def _walk(members: object, path: Path) -> Iterator[Path]:
    if not isinstance(members, dict) or len(path) > MAX_DEPTH:
        return
    for key, value in members.items():
        own = (*path, key)
        if isinstance(value, dict):
            yield from _walk(value, own)
        elif value is not None and not isinstance(value, list):
            yield own


# ---- types


def type_of(value: str) -> str:
    """Return Loki's name for the type of a value."""
    if _INTEGER.fullmatch(value) and -_INT64 <= int(value) < _INT64:
        return "int"
    if _reads(parse_float, value):
        return "float"
    if value in _BOOLEANS:
        return "boolean"
    if _reads(parse_duration, value):
        return "duration"
    return "bytes" if _reads(parse_bytes, value) else "string"


def _reads(read: Callable[[str], float], value: str) -> bool:
    try:
        read(value)
    except ValueError:
        return False
    return True


def _as_written_in_queries(value: str) -> str:
    """Write a size without a space and in powers of 1000; other values stay as they are."""
    unit = value.lstrip("0123456789.,").strip()
    return bytes_text(parse_bytes(value)) if _SIZE_UNIT.fullmatch(unit) and _reads(parse_bytes, value) else value
