"""What an answer took, and what it lacks: counted by workers, added up by the coordinator, shown by EXPLAIN ANALYZE, in
progress events and in the last word of an answer.

What always holds: adding accounts in any order gives the same; an answer is whole if its account names nothing missing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from functools import reduce
from operator import add
from typing import Any

from lakerunner.model.time import TimeRange


@dataclass(frozen=True)
class Missing:
    """Segments that could not be read, the time they cover, and why."""

    segments: int
    time: TimeRange
    reason: str


@dataclass(frozen=True)
class Account:
    """`considered` are the live segments of the scans' time ranges; each of them ends up in `pruned`, by what left it
    out, or in `read`. `row_groups` are those of segments that were looked into, likewise. Seconds are by stage; of what
    ran at once they are added up. `bytes_saved` are those of segments in whose place points
    of a rule were read. `warnings` are of rows that were asked for and have expired."""

    considered: int = 0
    pruned: Mapping[str, int] = field(default_factory=dict)
    read: int = 0
    row_groups: int = 0
    row_groups_pruned: Mapping[str, int] = field(default_factory=dict)
    rows: int = 0
    bytes_fetched: int = 0
    bytes_cached: int = 0
    bytes_saved: int = 0
    seconds: Mapping[str, float] = field(default_factory=dict)
    workers: Mapping[str, int] = field(default_factory=dict)
    missing: tuple[Missing, ...] = ()
    degraded: str = ""
    warnings: frozenset[str] = frozenset()
    from_cache: bool = False

    def __add__(self, other: Account) -> Account:
        return Account(**{f.name: _added(getattr(self, f.name), getattr(other, f.name)) for f in fields(self)})

    @property
    def complete(self) -> bool:
        return not self.missing

    @property
    def done(self) -> int:
        """Segments that need no more work."""
        return self.read + sum(self.pruned.values()) + sum(one.segments for one in self.missing)

    def to_json(self) -> dict[str, Any]:
        """What `from_json` reads back."""
        made = {f.name: getattr(self, f.name) for f in fields(self)}
        made |= {name: dict(value) for name, value in made.items() if isinstance(value, Mapping)}
        made["warnings"] = sorted(self.warnings)
        made["missing"] = [
            {"segments": m.segments, "start_ns": m.time.start_ns, "end_ns": m.time.end_ns, "reason": m.reason}
            for m in self.missing
        ]
        return made

    @classmethod
    def from_json(cls, given: Mapping[str, Any]) -> Account:
        missing = tuple(
            Missing(m["segments"], TimeRange(m["start_ns"], m["end_ns"]), m["reason"]) for m in given["missing"]
        )
        return cls(**{**given, "missing": missing, "warnings": frozenset(given["warnings"])})


def total(accounts: Iterable[Account]) -> Account:
    return reduce(add, accounts, Account())


def _added(one: Any, other: Any) -> Any:
    if not one or not other:  # most values of most accounts are 0 or empty, and small queries add many accounts
        return one or other
    if isinstance(one, Mapping):
        total = Counter(one)
        total.update(other)
        return dict(total)
    if isinstance(one, bool | str):
        return one
    return one | other if isinstance(one, frozenset) else one + other
