"""A work unit of metrics: what is to be made of one organization's segments. What a query worker is sent.

Beside SQL's units (query/unit.py), in the same JSON but for `metrics`, which says what is wanted.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from typing import Any, Literal
from uuid import UUID

from lakerunner.model.errors import Corrupt
from lakerunner.model.labels.matcher import Matcher
from lakerunner.model.segment import Segment
from lakerunner.model.tiling import Tiles
from lakerunner.query.metrics.selection import Selection, Shard
from lakerunner.query.unit_segments import own_segments, segments_from, segments_json
from lakerunner.series.evaluation.written import expression_from, expression_json
from lakerunner.series.expression import Expression
from lakerunner.series.values import Steps

_VERSION = 3


@dataclass(frozen=True)
class Evaluate:
    """A fragment (series/evaluation/fragments.py) over the selection's samples: vectors, or partials of an aggregation.
    `delayed_names`: metric names go when the evaluation ends, not at once."""

    expression: Expression
    steps: Steps
    lookback: int
    delayed_names: bool = False


@dataclass(frozen=True)
class Fetch:
    """The samples as they are."""


@dataclass(frozen=True)
class List:
    """What there is of the selection (query/metrics/rows.py); one row past `limit` says that there is more. `label` is
    the one whose values are wanted. `metrics` and `step` (ms) are of sketches: which metrics, by their names as they
    came, none: all; and how wide the windows are that they are for."""

    what: Literal[
        "series", "label_names", "label_values", "metadata", "exemplars", "metric_names", "sketches", "label_counts"
    ]
    limit: int
    label: str = ""
    metrics: tuple[str, ...] = ()
    step: int = 0


@dataclass(frozen=True)
class MetricsUnit:
    """Every segment is the organization's own and holds metrics. `partial`: segments that cannot be read are left out
    and named in the account. `max_points`: values or samples past which the unit is refused. `tiles`: which tier is
    read where, by an Evaluate that windows serve (series/evaluation/tiers.py) or by sketches; none: raw points."""

    organization: UUID
    segments: tuple[Segment, ...]
    selection: Selection
    task: Evaluate | Fetch | List
    partial: bool = False
    max_points: int = 50_000_000
    tiles: Tiles = field(default_factory=dict)

    def __post_init__(self) -> None:
        object.__setattr__(self, "segments", own_segments(self.organization, "metrics", self.segments))

    def to_bytes(self) -> bytes:
        unit = {
            "version": _VERSION,
            "metrics": _task_json(self.task),
            "organization": str(self.organization),
            "selection": asdict(self.selection),
            "partial": self.partial,
            "max_points": self.max_points,
            "tiles": [[frequency, times] for frequency, times in self.tiles.items()],
            **segments_json(self.segments),
        }
        return json.dumps(unit, separators=(",", ":")).encode()

    @classmethod
    def from_json(cls, unit: dict[str, Any]) -> MetricsUnit:
        """Corrupt if this is no unit of metrics of this version, or it mixes organizations."""
        try:
            if unit["version"] != _VERSION:
                raise Corrupt(f"unit of metrics of version {unit['version']}: this worker takes version {_VERSION}")
            return cls(
                UUID(unit["organization"]),
                segments_from(unit),
                _selection(unit["selection"]),
                _task(unit["metrics"]),
                unit["partial"],
                unit["max_points"],
                {frequency: tuple((start, end) for start, end in times) for frequency, times in unit["tiles"]},
            )
        except (ValueError, KeyError, TypeError, IndexError, AttributeError) as error:
            raise Corrupt(f"not a unit of metrics: {error}") from error


def _task_json(task: Evaluate | Fetch | List) -> dict[str, Any]:
    if isinstance(task, Evaluate):
        steps = [task.steps.start, task.steps.end, task.steps.step]
        return {
            "evaluate": expression_json(task.expression),
            "steps": steps,
            "lookback": task.lookback,
            "delayed_names": task.delayed_names,
        }
    return {"list": asdict(task)} if isinstance(task, List) else {"fetch": True}


def _task(given: dict[str, Any]) -> Evaluate | Fetch | List:
    if "evaluate" in given:
        expression, steps = expression_from(given["evaluate"]), Steps(*given["steps"])
        return Evaluate(expression, steps, given["lookback"], given["delayed_names"])
    if "list" in given:
        return List(**{**given["list"], "metrics": tuple(given["list"].get("metrics", ()))})
    return Fetch()


def _selection(given: dict[str, Any]) -> Selection:
    matchers = tuple(Matcher(**one) for one in given["matchers"])
    return Selection(matchers, given["start"], given["end"], Shard(**given["shard"]))
