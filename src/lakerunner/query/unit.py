"""A work unit: a leaf of one organization's query, and the segments or the part of them it is to be run over. What a
query worker is sent.

The wire form is JSON; query/unit_segments.py has that of segments, each operator its own.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any
from uuid import UUID

from lakerunner.model.condition import Condition, Contains, Equals, Present
from lakerunner.model.errors import Corrupt
from lakerunner.model.segment import Segment
from lakerunner.model.signal import Attribute
from lakerunner.model.tiling import Tiles
from lakerunner.model.time import TimeRange
from lakerunner.plan.operator import Operator
from lakerunner.plan.plan import ALL, Leaf, Shard
from lakerunner.plan.scan import Scan, Typed
from lakerunner.query.operators import OPERATORS
from lakerunner.query.unit_segments import own_segments, segments_from, segments_json

# An expression has at most 100 inside each other, two or three levels of JSON each; units are read recursively.
MAX_LEVELS = 400
_VERSION = 4
_CONDITIONS: dict[str, type[Condition]] = {kind.__name__: kind for kind in (Equals, Contains, Present)}


@dataclass(frozen=True)
class Unit:
    """Every segment is the organization's own and holds the leaf's signal; they are read in this order. `shard`: of a
    leaf that is cut by series or traces. `tiles`: which tier of rollups is read where; none: raw rows."""

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
            "version": _VERSION,
            "organization": str(self.organization),
            "scan": _scan_fields(self.leaf.scan),
            "operator": {"name": self.leaf.operator.name, **self.leaf.operator.to_json()},
            "shard": [self.shard.number, self.shard.of],
            "tiles": [[frequency, times] for frequency, times in self.tiles.items()],
            **segments_json(self.segments),
        }
        return json.dumps(unit, separators=(",", ":")).encode()

    @classmethod
    def from_bytes(cls, data: bytes, operators: Mapping[str, type[Operator]] = OPERATORS) -> Unit:
        """Corrupt if these are not the bytes of a unit of this version, of one organization."""
        try:
            unit = json.loads(data)
        except ValueError as error:
            raise Corrupt(f"not a work unit: {error}") from error
        except RecursionError:
            raise _too_deep() from None
        _check_levels(unit)
        try:
            if unit["version"] != _VERSION:
                raise Corrupt(f"work unit of version {unit['version']}: this worker takes version {_VERSION}")
            name = unit["operator"]["name"]
            if name not in operators:
                raise Corrupt(f"not a work unit: this worker has no operator {name!r}")
            leaf = Leaf(_scan(unit["scan"]), operators[name].from_json(unit["operator"]))
            tiles = {frequency: tuple((start, end) for start, end in times) for frequency, times in unit["tiles"]}
            return cls(UUID(unit["organization"]), leaf, segments_from(unit), Shard(*unit["shard"]), tiles)
        except (ValueError, KeyError, TypeError, IndexError, AttributeError) as error:
            raise Corrupt(f"not a work unit: {error}") from error


def _check_levels(unit: Any) -> None:
    """Level by level, so that a deep unit takes no stack."""
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
        "conditions": [{"kind": type(one).__name__, **asdict(one)} for one in scan.conditions],
        "typed": [[[[one.scope, one.key] for one in typed.attributes], typed.type] for typed in scan.typed],
    }


def _scan(fields: dict[str, Any]) -> Scan:
    return Scan(
        relation=fields["relation"],
        signal=fields["signal"],
        time=TimeRange(*fields["time"]),
        columns=tuple(fields["columns"]),
        attributes=_attributes(fields["attributes"]),
        ids=tuple(fields["ids"]),
        conditions=tuple(_condition(one) for one in fields["conditions"]),
        typed=tuple(Typed(_attributes(attributes), type_) for attributes, type_ in fields["typed"]),
    )


def _attributes(given: list[list[str]]) -> tuple[Attribute, ...]:
    return tuple(Attribute(scope, key) for scope, key in given)


def _condition(fields: dict[str, Any]) -> Condition:
    made = {name: _plain(value) for name, value in fields.items() if name != "kind"}
    return _CONDITIONS[fields["kind"]](**made)


def _plain(value: Any) -> Any:
    """Lists are tuples, and the only objects are attributes."""
    if isinstance(value, dict):
        return Attribute(**value)
    return tuple(map(_plain, value)) if isinstance(value, list) else value
