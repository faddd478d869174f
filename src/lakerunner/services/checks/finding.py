"""What a check found, and what it looked at.

What always holds: a finding says what is wrong, where, and what to do about it. So many are kept at most; the counts
go on.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from lakerunner.index.index import Index
from lakerunner.model.errors import Unavailable
from lakerunner.model.organization import Organization
from lakerunner.objects.store import ObjectStore

ERROR, NOTE = "error", "note"
KEPT = 1000


@dataclass(frozen=True)
class Finding:
    """`organization` is its name, or "" where the finding is nobody's."""

    check: str
    severity: str
    organization: str
    what: str
    where: str
    to_do: str


@dataclass
class Findings:
    """Of a whole run. `looked_at` counts by what was looked at; `unchecked` says what could not be, and why."""

    kept: list[Finding] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)
    looked_at: Counter[str] = field(default_factory=Counter)
    unchecked: list[str] = field(default_factory=list)

    def add(self, finding: Finding) -> None:
        self.counts[finding.severity] += 1
        if len(self.kept) < KEPT:
            self.kept.append(finding)

    def could_not(self, what: str, error: Exception) -> None:
        """Said once for each check and reason: a store that is away is away for every object."""
        said = f"{what}: {error}"
        if said not in self.unchecked and len(self.unchecked) < KEPT:
            self.unchecked.append(said)

    @contextmanager
    def attempt(self, what: str) -> Iterator[None]:
        """What cannot be reached is not checked, and the others are."""
        try:
            yield
        except Unavailable as error:
            self.could_not(what, error)


@dataclass(frozen=True)
class Lake:
    """What checks look into. `directory` holds files of a remote store while they are read; `say` tells of progress."""

    index: Index
    store: ObjectStore
    directory: Path
    say: Callable[[str], None]


@dataclass(frozen=True)
class Scope:
    """Whose data, how thoroughly: `deep` reads everything, else `sample` pieces of work are drawn by `seed`."""

    organization: Organization
    deep: bool
    sample: int
    seed: int
    now_ns: int
    grace_seconds: float

    def finding(self, check: str, severity: str, what: str, where: str, to_do: str) -> Finding:
        return Finding(check, severity, self.organization.name, what, where, to_do)
