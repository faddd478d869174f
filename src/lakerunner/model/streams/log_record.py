"""Stored log records as Loki has them: the labels of their streams, their lines and their metadata.

Comes in: what was stored of a record, of its scope and of its resource, and the organization's rules. Goes out: labels,
metadata and line as Loki would have them if the record had been sent to it (docs/formats/streams.md). What always
holds: a label of a stream is never empty; the order in which attributes were stored makes no difference.

A resource that came as a Loki stream has one of two marks as its schema URL. Its attributes are the labels of the
stream, and the attributes of its records are their metadata; what ingest derived from them is in neither.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

from lakerunner.model.streams.attribute_text import flattened, value_text
from lakerunner.model.streams.label_names import is_label_name, label_name
from lakerunner.model.streams.line_level import LEVEL_NAMES, LEVELS, UNKNOWN, line_level
from lakerunner.model.streams.stored_attributes import attributes_of
from lakerunner.model.streams.stream_rules import Action, AttributeNames, AttributeRule, StreamRules
from lakerunner.model.typed_json import Value as AttributeValue
from lakerunner.model.typed_json import decode_value as value_of_json

__all__ = [
    "LEVEL_TELLING",
    "LOKI_MARKS",
    "LOKI_STREAM",
    "LOKI_STREAM_SERVICE",
    "AttributeValue",
    "RecordFields",
    "Resource",
    "ResourceLabels",
    "ScopeFields",
    "holds_stored_levels",
    "line_of",
    "metadata_of",
    "scope_metadata_of",
    "stated_level_of",
    "stored_stream_of",
    "stream_of",
    "value_of_json",
]

# Stored rows have these: they never change. Their length must fit in one byte (pipeline/read/otlp_logs.py).
LOKI_STREAM = "urn:lakerunner:loki-stream"
LOKI_STREAM_SERVICE = "urn:lakerunner:loki-stream:service-name-added"
LOKI_MARKS = (LOKI_STREAM, LOKI_STREAM_SERVICE)

SERVICE_KEY = "service.name"
SERVICE_NAME, UNKNOWN_SERVICE = "service_name", "unknown_service"
DETECTED_LEVEL, SEVERITY_NUMBER = "detected_level", "severity_number"
LEVEL_TELLING = frozenset((DETECTED_LEVEL, SEVERITY_NUMBER, *LEVEL_NAMES))
_LEVELS_OF_NUMBERS = ("trace", "debug", "info", "warn", "error", "fatal")  # four numbers each, from 1
_INTEGER, _LIMIT = re.compile(r"[+-]?[0-9]{1,1000}"), 1 << 63

_KNOWN_RESOURCES = 5000  # that are remembered for each of the rules that were used last

Attributes = Mapping[str, AttributeValue]


class Resource(NamedTuple):
    attributes: Attributes
    schema_url: str


@dataclass(frozen=True)
class ResourceLabels:
    """The labels of a resource's stream, sorted by name, and the metadata that all of its lines have. `level` is that
    of a level-like label, None if the stream has none."""

    labels: Mapping[str, str]
    metadata: Mapping[str, str]
    is_loki: bool
    level: str | None


class ScopeFields(NamedTuple):
    attributes: Attributes
    name: str
    version: str
    dropped_attributes_count: int


class RecordFields(NamedTuple):
    """Times are ns, 0 if unset; ids are hexadecimal, "" if unset."""

    attributes: Attributes
    timestamp: int
    observed_timestamp: int
    severity_number: int
    severity_text: str
    dropped_attributes_count: int
    flags: int
    trace_id: str
    span_id: str
    event_name: str


# ---- streams


def stream_of(resource: Resource, rules: StreamRules) -> ResourceLabels:
    """Return the labels of the stream that this resource is."""
    attributes = resource.attributes
    is_loki = resource.schema_url in LOKI_MARKS
    metadata: Mapping[str, str] = {}
    if is_loki:
        added = SERVICE_KEY if resource.schema_url == LOKI_STREAM_SERVICE else None
        labels = {key: value_text(value) for key, value in attributes.items() if key != added}
        named = bool(labels.get(SERVICE_NAME))
    else:
        labels = _labels_by(attributes, rules.resource_names, Action.LABEL)
        metadata = _labels_by(attributes, rules.resource_names, Action.METADATA)
        # A service that the rules make metadata is still known: nothing else takes its place.
        named = bool(labels.get(SERVICE_NAME)) or bool(value_text(attributes.get(SERVICE_KEY)))
    if not named and rules.service_labels:
        found = (labels[name] for name in rules.service_labels if labels.get(name))
        labels[SERVICE_NAME] = next(found, UNKNOWN_SERVICE)
    kept = {name: labels[name] for name in sorted(labels) if labels[name]}
    level = next((kept[name] for name in LEVEL_NAMES if name in kept), None)
    return ResourceLabels(kept, metadata, is_loki, None if level is None else _normal_level(level))


@lru_cache(4)
def stored_stream_of(rules: StreamRules) -> Callable[[str | None, str], ResourceLabels]:
    """Return `stream_of` for the attributes of a resource as they are stored, and its schema URL. It remembers the
    last ones: each query sees all resources of its segments."""

    @lru_cache(_KNOWN_RESOURCES)
    def find(attributes: str | None, schema_url: str) -> ResourceLabels:
        return stream_of(Resource(attributes_of(attributes), schema_url), rules)

    return find


def _labels_by(attributes: Attributes, names: AttributeNames, wanted: Action) -> dict[str, str]:
    """Return the labels of the attributes for which the rules say this. Of equal names the one of the last key counts,
    because the order in which they were sent is not stored."""
    found: dict[str, str] = {}
    labels = 0
    for key, value in attributes.items():
        action, name = names[key]
        if action is not wanted:
            continue
        if type(value) is str:
            found[name] = value
            labels += 1
        else:
            for inner, text in flattened(name, value):
                found[inner] = text
                labels += 1
    if labels == len(found):
        return found
    ordered = ((names[key], attributes[key]) for key in sorted(attributes))
    return {
        inner: text for (action, name), value in ordered if action is wanted for inner, text in flattened(name, value)
    }


# ---- lines


def line_of(message: str, body: str | None, *, is_loki: bool) -> str:
    """Return the line of a record. `body` is the typed JSON of a body that is not a string."""
    if body is None:
        return message
    value = value_of_json(body)
    if is_loki and isinstance(value, bytes):  # a line that is not UTF-8
        return value.decode("utf-8", "surrogateescape")
    return value_text(value)


# ---- metadata


def scope_metadata_of(scope: ScopeFields, rules: StreamRules) -> Mapping[str, str]:
    """Return the metadata that all lines of a scope have."""
    found = _labels_by(scope.attributes, rules.scope_names, Action.METADATA)
    fields = (
        ("scope_name", scope.name),
        ("scope_version", scope.version),
        ("scope_dropped_attributes_count", _unless_0(scope.dropped_attributes_count)),
    )
    found.update((name, value) for name, value in fields if value)
    return found


def metadata_of(
    record: RecordFields, resource: ResourceLabels, scope: Mapping[str, str], line: str, rules: StreamRules
) -> dict[str, str]:
    """Return the metadata of a line, with its level. Where names are equal, the scope's count more than the resource's,
    those more than the record's fields, and its attributes least: Loki's reader takes the last one."""
    own = _own_metadata(record, rules, is_loki=resource.is_loki)
    shared = () if resource.is_loki else (resource.metadata, scope)
    level = None
    if rules.detect_levels:
        level = _stated_level((own, *shared), resource)
        if level is None:
            level = line_level(line)
    for one in shared:
        own.update(one)
    if level:
        own[DETECTED_LEVEL] = level
    return own


def stated_level_of(
    record: RecordFields, resource: ResourceLabels, scope: Mapping[str, str], rules: StreamRules
) -> tuple[bool, str | None]:
    """Return whether the level of a record is decided without its line; and the `detected_level` that it then has,
    None if it has none."""
    own = _own_metadata(record, rules, is_loki=resource.is_loki)
    shared = (own,) if resource.is_loki else (own, resource.metadata, scope)
    level = _stated_level(shared, resource)
    if level == "":  # what the metadata have stays
        given = [one[DETECTED_LEVEL] for one in shared if DETECTED_LEVEL in one]
        return True, given[-1] if given else None
    return level is not None, level


def holds_stored_levels(rules: StreamRules) -> bool:
    """Return whether levels are those that ingest found by the default rules."""
    return rules.detect_levels and not any(map(_may_change_level, (*rules.resource, *rules.scope, *rules.record)))


def _may_change_level(rule: AttributeRule) -> bool:
    """Return whether a rule may hide or move an attribute that states a level; what a map holds counts as well."""
    names = tuple(label_name(key).strip("_") for key in rule.attributes)
    return bool(rule.regex) or any(telling.startswith(names) for telling in LEVEL_TELLING)


def _own_metadata(record: RecordFields, rules: StreamRules, *, is_loki: bool) -> dict[str, str]:
    if is_loki:
        return _as_sent(record.attributes)
    own = _labels_by(record.attributes, rules.record_names, Action.METADATA) if record.attributes else {}
    own.update(_fields_of(record))
    return own


def _as_sent(attributes: Attributes) -> dict[str, str]:
    """Return the metadata of a line of a Loki stream. Names that no query could use are changed as Loki does it."""
    return {key if is_label_name(key) else label_name(key): value_text(attributes[key]) for key in sorted(attributes)}


def _fields_of(record: RecordFields) -> dict[str, str]:
    found = {}
    # A record without a time has that of its observation, and Loki does not repeat it.
    if record.observed_timestamp and record.observed_timestamp != record.timestamp:
        found["observed_timestamp"] = str(record.observed_timestamp)
    if record.severity_number:
        found[SEVERITY_NUMBER] = str(record.severity_number)
    if record.severity_text:
        found["severity_text"] = record.severity_text
    if record.dropped_attributes_count:
        found["dropped_attributes_count"] = str(record.dropped_attributes_count)
    if record.flags:
        found["flags"] = str(record.flags)
    if record.trace_id:
        found["trace_id"] = record.trace_id
    if record.span_id:
        found["span_id"] = record.span_id
    if record.event_name:
        found["event_name"] = record.event_name
    return found


def _unless_0(number: int) -> str:
    return str(number) if number else ""


# ---- levels


def _stated_level(shared: tuple[Mapping[str, str], ...], resource: ResourceLabels) -> str | None:
    """Return the level of a line, in Loki's order; "" if a level-like name has an empty value, None if the line itself
    is to be looked at."""
    telling = [
        one for one in shared if not LEVEL_TELLING.isdisjoint(one)
    ]  # most lines have none, or one name in one of them
    given = _first(telling, DETECTED_LEVEL) if telling else None
    if given is not None:
        return _normal_level(given)
    if resource.level is not None:
        return resource.level
    if not telling:
        return None
    for name in LEVEL_NAMES:
        given = _first(telling, name)
        if given is not None:
            return _normal_level(given)
    number = _first(telling, SEVERITY_NUMBER)
    return level_of_number(number) if number else None


def _first(shared: Sequence[Mapping[str, str]], name: str) -> str | None:
    for one in shared:
        if name in one:
            return one[name]
    return None


def _normal_level(word: str) -> str:
    """Return the level; an unknown word stays as it is."""
    return LEVELS.get(word.casefold(), word)


def level_of_number(text: str) -> str:
    """Return the level of a severity number; what is not a number is `info`, as in Loki."""
    if not _INTEGER.fullmatch(text) or not -_LIMIT <= (number := int(text)) < _LIMIT:
        return "info"
    if number == 0 or number > 4 * len(_LEVELS_OF_NUMBERS):
        return UNKNOWN
    return _LEVELS_OF_NUMBERS[max(number - 1, 0) // 4]
