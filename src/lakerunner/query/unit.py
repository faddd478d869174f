"""A work unit: a leaf of one organization's query, and the segments, or the part of their series, that it runs over.
It is what a worker is sent.

The wire form is JSON; each operator has its own (plan/operator.py).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from typing import Any
from uuid import UUID

from lakerunner.model.condition import AllOf, AnyOf, Condition, Contains, Equals, Labelled, NotNull, Present, Stored
from lakerunner.model.condition import Leaf as ConditionLeaf
from lakerunner.model.errors import Corrupt
from lakerunner.model.segment import Column, Segment
from lakerunner.model.signal import Attribute
from lakerunner.model.tier import Tiles
from lakerunner.model.time import TimeRange
from lakerunner.plan.operator import Operator
from lakerunner.plan.plan import ALL, Leaf, Shard
from lakerunner.plan.scan import Scan, TypedAttributes
from lakerunner.query.operator_table import OPERATORS

# An expression has at most 100 inside each other, two or three levels of JSON each; units are read recursively.
MAX_LEVELS = 400
VERSION = 7
_SENT = tuple(one.name for one in fields(Segment) if one.name not in ("fingerprints", "rolled", "rule_set"))
_LEAVES: dict[str, type[ConditionLeaf]] = {
    kind.__name__: kind for kind in (Equals, Contains, Present, Labelled, NotNull, Stored)
}
_TREES: dict[str, type[AnyOf] | type[AllOf]] = {kind.__name__: kind for kind in (AnyOf, AllOf)}


@dataclass(frozen=True)
class Unit:
    """Every segment is the organization's own and holds the leaf's signal; they are read in this order. `shard` is
    that of a leaf which is cut by series or traces. `tiles`: which tier of rollups is read where; empty: raw rows."""

    organization: UUID
    leaf: Leaf
    segments: tuple[Segment, ...]
    shard: Shard = ALL
    tiles: Tiles = field(default_factory=dict)

    def __post_init__(self) -> None:
        checked = own_segments(self.organization, self.leaf.scan.signal, self.segments)
        object.__setattr__(self, "segments", checked)

    def to_bytes(self) -> bytes:
        unit = {
            "version": VERSION,
            "organization": str(self.organization),
            "scan": _scan_fields(self.leaf.scan),
            "operator": {"name": self.leaf.operator.name, **self.leaf.operator.to_json()},
            "shard": [self.shard.number, self.shard.of],
            "tiles": [[frequency, times] for frequency, times in self.tiles.items()],
            **_segments_json(self.segments),
        }
        return json.dumps(unit, separators=(",", ":")).encode()

    @classmethod
    def from_bytes(cls, data: bytes, operators: Mapping[str, type[Operator]] = OPERATORS) -> Unit:
        """Read a unit. Corrupt if these are not the bytes of a unit of this version and of one organization."""
        try:
            unit = json.loads(data)
        except ValueError as error:
            raise Corrupt(f"not a work unit: {error}") from error
        except RecursionError:
            raise _too_deep() from None
        _check_levels(unit)
        try:
            if unit["version"] != VERSION:
                raise Corrupt(f"work unit of version {unit['version']}: this worker takes version {VERSION}")
            name = unit["operator"]["name"]
            if name not in operators:
                raise Corrupt(f"not a work unit: this worker has no operator {name!r}")
            leaf = Leaf(_scan(unit["scan"]), operators[name].from_json(unit["operator"]))
            tiles = {frequency: tuple((start, end) for start, end in times) for frequency, times in unit["tiles"]}
            return cls(UUID(unit["organization"]), leaf, _segments_from(unit), Shard(*unit["shard"]), tiles)
        except (ValueError, KeyError, TypeError, IndexError, AttributeError) as error:
            raise Corrupt(f"not a work unit: {error}") from error


def _check_levels(unit: Any) -> None:
    """Refuse a unit that is nested too deeply; level by level, so that a deep one takes no stack."""
    level = [unit]
    for _ in range(MAX_LEVELS):
        level = [item for value in level for item in _items(value)]
        if not level:
            return
    raise _too_deep()


def _items(value: Any) -> list[Any]:
    found = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return [item for item in found if isinstance(item, dict | list)]


def _too_deep() -> Corrupt:
    return Corrupt(f"not a work unit: it is nested deeper than {MAX_LEVELS} levels")


def _scan_fields(scan: Scan) -> dict[str, Any]:
    return {
        "relation": scan.relation,
        "signal": scan.signal,
        "time": [scan.time.start_ns, scan.time.end_ns],
        "columns": scan.columns,
        "attributes": [[attribute.scope, attribute.key] for attribute in scan.attributes],
        "ids": scan.ids,
        "conditions": [_condition_fields(one) for one in scan.conditions],
        "typed": [[[[one.scope, one.key] for one in typed.attributes], typed.type] for typed in scan.typed],
        "internal": scan.internal,
        "labels": scan.labels,
        "level_sources": scan.level_sources,
    }


def _scan(sent: dict[str, Any]) -> Scan:
    return Scan(
        relation=sent["relation"],
        signal=sent["signal"],
        time=TimeRange(*sent["time"]),
        columns=tuple(sent["columns"]),
        attributes=_attributes(sent["attributes"]),
        ids=tuple(sent["ids"]),
        conditions=tuple(_condition(one) for one in sent["conditions"]),
        typed=tuple(TypedAttributes(_attributes(attributes), type_) for attributes, type_ in sent["typed"]),
        internal=tuple(sent["internal"]),
        labels=None if sent["labels"] is None else tuple(sent["labels"]),
        level_sources=tuple(sent["level_sources"]),
    )


def _attributes(given: list[list[str]]) -> tuple[Attribute, ...]:
    return tuple(Attribute(scope, key) for scope, key in given)


def _condition_fields(condition: Condition) -> dict[str, Any]:
    kind = {"kind": type(condition).__name__}
    if isinstance(condition, AnyOf | AllOf):
        return kind | {"conditions": [_condition_fields(one) for one in condition.conditions]}
    return kind | asdict(condition)


def _condition(sent: dict[str, Any]) -> Condition:
    if "conditions" in sent:
        return _TREES[sent["kind"]](tuple(map(_condition, sent["conditions"])))
    made = {name: _plain(value) for name, value in sent.items() if name != "kind"}
    return _LEAVES[sent["kind"]](**made)


def _plain(value: Any) -> Any:
    """Lists are tuples, and the only objects are attributes."""
    if isinstance(value, dict):
        return Attribute(**value)
    return tuple(map(_plain, value)) if isinstance(value, list) else value


def own_segments(organization: UUID, signal: str, segments: Iterable[Segment]) -> tuple[Segment, ...]:
    """Return the segments. ValueError unless all are the organization's and hold the signal."""
    checked = tuple(segments)
    for segment in checked:
        if segment.organization != organization:
            raise ValueError(f"segment {segment.id} is not one of organization {organization}")
        if segment.signal != signal:
            raise ValueError(f"{segment.path} holds {segment.signal}, the scan reads {signal}")
    return checked


def _segments_json(segments: Sequence[Segment]) -> dict[str, Any]:
    """Column sets, which most segments share, stand there once. Of statistics only the sizes of side files travel: the
    others, and the fingerprints, have done their work when the segments were picked."""
    sets = {columns: n for n, columns in enumerate({segment.columns: None for segment in segments})}
    return {
        "column_sets": [[[column.name, column.type] for column in columns] for columns in sets],
        "segments": [_segment_fields(segment, sets) for segment in segments],
    }


def _segments_from(given: Mapping[str, Any]) -> tuple[Segment, ...]:
    sets = [tuple(Column(name, type_) for name, type_ in columns) for columns in given["column_sets"]]
    return tuple(_segment(sent, sets) for sent in given["segments"])


def _segment_fields(segment: Segment, sets: dict[tuple[Column, ...], int]) -> dict[str, Any]:
    sizes = segment.statistics.get("side_bytes")
    return {name: getattr(segment, name) for name in _SENT} | {
        "id": str(segment.id),
        "organization": str(segment.organization),
        "time": [segment.time.start_ns, segment.time.end_ns],
        "columns": sets[segment.columns],
        "statistics": {"side_bytes": sizes} if sizes else {},
    }


def _segment(sent: dict[str, Any], sets: list[tuple[Column, ...]]) -> Segment:
    given = {
        "id": UUID(sent["id"]),
        "organization": UUID(sent["organization"]),
        "time": TimeRange(*sent["time"]),
        "columns": sets[sent["columns"]],
    }
    return Segment(**(sent | given))
