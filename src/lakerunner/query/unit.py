"""A work unit: a leaf of one organization's query and the segments it is to be run over. What a query-worker is sent.

The wire form is JSON; query/unit_segments.py has that of segments.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Any
from uuid import UUID

from lakerunner.model.errors import Corrupt
from lakerunner.model.segment import Segment
from lakerunner.model.time import TimeRange
from lakerunner.plan.scan import Attribute, Condition, Contains, Equals, Present, Scan, Typed
from lakerunner.plan.sql import Leaf
from lakerunner.query.unit_segments import own_segments, segments_from, segments_json

_VERSION = 3
_CONDITIONS: dict[str, type[Condition]] = {kind.__name__: kind for kind in (Equals, Contains, Present)}


@dataclass(frozen=True)
class WorkUnit:
    """Every segment is the organization's own and holds the leaf's signal; they are read in this order."""

    organization: UUID
    leaf: Leaf
    segments: tuple[Segment, ...]

    def __post_init__(self) -> None:
        checked = own_segments(self.organization, self.leaf.scan.signal, self.segments)
        object.__setattr__(self, "segments", checked)

    def to_bytes(self) -> bytes:
        unit = {
            "version": _VERSION,
            "organization": str(self.organization),
            "scan": _scan_fields(self.leaf.scan),
            "sql": self.leaf.sql,
            "steady": self.leaf.steady,
            **segments_json(self.segments),
        }
        return json.dumps(unit, separators=(",", ":")).encode()

    @classmethod
    def from_json(cls, unit: Any) -> WorkUnit:
        """Corrupt if this is not a work unit of this version, or it mixes organizations."""
        try:
            if unit["version"] != _VERSION:
                raise Corrupt(f"work unit of version {unit['version']}: this worker takes version {_VERSION}")
            leaf = Leaf(_scan(unit["scan"]), unit["sql"], unit["steady"])
            return cls(UUID(unit["organization"]), leaf, segments_from(unit))
        except (ValueError, KeyError, TypeError, IndexError, AttributeError) as error:
            raise Corrupt(f"not a work unit: {error}") from error


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
