"""A sweep for people: one line for all findings that are alike, bounded however much there is."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from uuid import UUID

from lakerunner.services.sweep.finding import Finding, Gone, Kind


@dataclass(frozen=True)
class Line:
    """All findings of one kind, organization, signal or tier, and reason. `goes` as in Finding."""

    kind: Kind
    organization: UUID | None
    what: str
    reason: str
    goes: bool
    count: int = 0
    bytes: int = 0
    oldest_ns: int = 0


@dataclass
class Report:
    """What was found, and of that, in a sweep, what went: `objects`, `bytes`, and `rows` by table."""

    objects: int = 0
    bytes: int = 0
    rows: Counter[str] = field(default_factory=Counter)
    failures: list[tuple[str, str]] = field(default_factory=list)
    stopped: bool = False
    _lines: dict[tuple[object, ...], Line] = field(default_factory=dict)

    def add(self, findings: Iterable[Finding]) -> None:
        for one in findings:
            alike = (one.kind, one.organization, one.what, one.reason, one.goes)
            line = self._lines.get(alike) or Line(*alike, oldest_ns=one.since_ns)
            self._lines[alike] = replace(
                line,
                count=line.count + one.count,
                bytes=line.bytes + one.bytes,
                oldest_ns=min(line.oldest_ns, one.since_ns),
            )

    def took(self, gone: Gone) -> None:
        self.objects += gone.objects
        self.bytes += gone.bytes
        self.rows.update(dict(gone.rows))

    def lines(self) -> list[Line]:
        order = list(Kind)
        return sorted(
            self._lines.values(),
            key=lambda line: (order.index(line.kind), str(line.organization), line.what, not line.goes, line.reason),
        )

    def counts(self) -> dict[str, int]:
        """Of what goes, by kind."""
        found: Counter[str] = Counter()
        for line in self._lines.values():
            if line.goes:
                found[line.kind.value.replace(" ", "_")] += line.count
        return dict(found)
