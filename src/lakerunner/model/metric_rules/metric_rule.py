"""A rule that makes a metric of telemetry, and its versions.

Comes from the catalog in the index, from the command line and from YAML; read by ingest, which evaluates rules, and by
the planner, which reads what they made in place of rows. What always holds: two versions of a rule are two rules to
everything but people, since each has a collector of its own, in whose name its points are stored: merges, rollups and
sweeps keep the points of collectors apart. Selectors are texts here; their languages check them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self
from uuid import UUID

from lakerunner.model.errors import UserError
from lakerunner.model.organization import RULE_PREFIX, checked_name
from lakerunner.model.signal import signal_named

BUCKET_MS = 10_000
DEFAULT_MAX_SERIES = 10_000
DURATION = "duration"
# What may be measured of a signal; those that measure a field name it in parentheses.
KINDS: Mapping[str, tuple[str, ...]] = {
    "logs": ("count", "bytes", "sum", "histogram"),
    "traces": ("count", "errors", "sum", "histogram"),
    "metrics": ("sum",),
}
OF_FIELD = ("sum", "histogram")
EVALUATED = ("logs",)  # signals whose rules make points, of what is ingested and of what is stored
CONVERSIONS = ("bytes", "duration", "duration_seconds")
_MOST_DIMENSIONS = 32
_MOST_SERIES = 1_000_000
# Characters of each text: ingest reads all rules of an organization for every box.
_LONGEST = {"selector": 8192, "description": 1024, "metric": 255, "source_metric": 255}
_TEXTS = ("name", "signal", "selector", "metric", "source_metric", "description")
_MEASURE = re.compile(rf"(\w+)(?:\((?:({'|'.join(CONVERSIONS)})\()?([A-Za-z_][A-Za-z0-9_.]*)?\)?\))?")
_METRIC = re.compile(r"[A-Za-z_:][A-Za-z0-9_:]*")
_NOT_STORED = re.compile("[\0\ud800-\udfff]")
_LABEL = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


@dataclass(frozen=True)
class Measure:
    """What a rule adds up. `field` is a label of lines, or an attribute of spans; `conversion` is Loki's, or ""."""

    kind: str
    field: str = ""
    conversion: str = ""

    def __str__(self) -> str:
        if self.kind not in OF_FIELD:
            return self.kind
        return f"{self.kind}({f'{self.conversion}({self.field})' if self.conversion else self.field})"

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read count, bytes, errors, sum(field), histogram(field), also with a conversion: sum(bytes(field))."""
        plain = text.replace(" ", "")
        found = _MEASURE.fullmatch(plain)
        measure = cls(found[1], found[3] or "", found[2] or "") if found else cls("")
        is_known = any(measure.kind in kinds for kinds in KINDS.values())
        if not is_known or str(measure) != plain or (measure.kind in OF_FIELD) != bool(measure.field):
            raise UserError(f"unknown measure {text!r}: use count, bytes, errors, sum(FIELD) or histogram(FIELD)")
        return measure


@dataclass(frozen=True)
class MetricRule:
    """`selector` chooses the lines, spans or points, in the signal's language. `source_metric` is for metrics alone.
    `dimensions` are the labels that the metric keeps, sorted; `max_series` how many series it may have before the rule
    is paused."""

    name: str
    signal: str
    selector: str
    measure: Measure
    metric: str
    dimensions: tuple[str, ...] = ()
    source_metric: str = ""
    description: str = ""
    enabled: bool = True
    max_series: int = DEFAULT_MAX_SERIES

    def __post_init__(self) -> None:
        checked_name("rule", self.name)
        if len(self.name) > 64:
            raise UserError(f"rule name {self.name!r} is too long: use 64 characters at most")
        for field, most in _LONGEST.items():
            _check_text(field, getattr(self, field), most)
        for dimension in (self.measure.field, *self.dimensions):
            _check_text("field or dimension", dimension, 255)
        signal_named(self.signal)
        if self.measure.kind not in KINDS[self.signal]:
            raise UserError(f"{self.signal} have no measure {self.measure}: use one of {', '.join(KINDS[self.signal])}")
        if not _METRIC.fullmatch(self.metric):
            raise UserError(f"metric name {self.metric!r} is invalid: use letters, digits, '_' and ':'")
        if bool(self.source_metric) != (self.signal == "metrics"):
            raise UserError("source_metric names the metric that a rule over metrics reads, and no other rule has it")
        for name in self.dimensions:
            if not _LABEL.fullmatch(name) or name == "__name__":
                raise UserError(f"dimension {name!r} is no label name: use letters, digits and '_'")
        if list(self.dimensions) != sorted(set(self.dimensions)) or len(self.dimensions) > _MOST_DIMENSIONS:
            raise UserError(f"dimensions are {_MOST_DIMENSIONS} at most, sorted, each once: {self.dimensions}")
        if not 1 <= self.max_series <= _MOST_SERIES:
            raise UserError(f"max_series is at least 1 and at most {_MOST_SERIES}")

    def to_json(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in _TEXTS} | {
            "measure": str(self.measure),
            "dimensions": list(self.dimensions),
            "enabled": self.enabled,
            "max_series": self.max_series,
        }

    @classmethod
    def from_json(cls, given: Mapping[str, Any]) -> Self:
        """Read what `to_json` writes; what is not there has its default. UserError names what is wrong."""
        unknown = sorted(given.keys() - {*_TEXTS, "measure", "dimensions", "enabled", "max_series"})
        missing = [name for name in ("name", "signal", "selector", "measure", "metric") if name not in given]
        if unknown or missing:
            raise UserError(f"a rule has unknown keys {unknown}" if unknown else f"a rule lacks {', '.join(missing)}")
        for name in ("measure", *_TEXTS):
            if not isinstance(given.get(name, ""), str):
                raise UserError(f"{name} of a rule is a text")
        dimensions, limit = given.get("dimensions", []), given.get("max_series", DEFAULT_MAX_SERIES)
        if not isinstance(dimensions, list) or not all(isinstance(one, str) for one in dimensions):
            raise UserError("dimensions of a rule are a list of texts")
        if not isinstance(limit, int) or isinstance(limit, bool) or not isinstance(given.get("enabled", True), bool):
            raise UserError("max_series of a rule is a whole number, enabled is true or false")
        texts = {name: given[name] for name in _TEXTS if name in given}
        return cls(
            **texts,
            measure=Measure.parse(given["measure"]),
            dimensions=tuple(sorted(set(dimensions))),
            enabled=given.get("enabled", True),
            max_series=limit,
        )


def _check_text(field: str, text: str, most: int) -> None:
    if len(text) > most:
        raise UserError(f"{field} of a rule has {len(text)} characters: use {most} at most")
    if _NOT_STORED.search(text):
        raise UserError(f"{field} of a rule has a NUL or half a surrogate pair, which cannot be stored")


@dataclass(frozen=True)
class RuleVersion:
    """One version of a rule, by its number in the index. `paused` says why it makes no points; "": it does. `since_ns`
    is from when on it covers stored segments too; None: it covers what is ingested."""

    id: int
    organization: UUID
    version: int
    rule: MetricRule
    paused: str = ""
    since_ns: int | None = None

    @property
    def collector(self) -> str:
        """Return the collector in whose name its points are stored."""
        return f"{RULE_PREFIX}{self.rule.name}.{self.version}"

    @property
    def state(self) -> str:
        """Return whether it makes points, and why not, for people."""
        if not self.rule.enabled:
            return "disabled"
        if self.rule.signal not in EVALUATED:
            return f"waits: rules over {self.rule.signal} are stored, but not evaluated yet"
        return f"paused: {self.paused}" if self.paused else "active"

    @property
    def is_active(self) -> bool:
        return self.rule.enabled and not self.paused
