"""Findings of checks, and counts of what was checked.

What always holds: a finding says what is wrong, where, and what to do about it. Only a limited number is kept; the
counts go on.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from lakerunner.index.index import Index
from lakerunner.model.errors import Unavailable
from lakerunner.model.organization import Organization
from lakerunner.model.segment import Segment
from lakerunner.objects.store import ObjectStore

ERROR, NOTE = "error", "note"
KEPT = 1000


@dataclass(frozen=True)
class Finding:
    """One thing that is wrong. `organization` is its name, or "" if the finding belongs to none."""

    check: str
    severity: str
    organization: str
    what: str
    where: str
    to_do: str


@dataclass
class Findings:
    """The findings of a run. `looked_at` counts what was checked, by kind; `unchecked` says what could not be, and
    why."""

    kept: list[Finding] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)
    looked_at: Counter[str] = field(default_factory=Counter)
    unchecked: list[str] = field(default_factory=list)

    def add(self, finding: Finding) -> None:
        self.counts[finding.severity] += 1
        if len(self.kept) < KEPT:
            self.kept.append(finding)

    def could_not(self, what: str, error: Exception) -> None:
        """Note what could not be checked, once for each check and reason: a store that is away is away for every
        object."""
        said = f"{what}: {error}"
        if said not in self.unchecked and len(self.unchecked) < KEPT:
            self.unchecked.append(said)

    @contextmanager
    def attempt(self, what: str) -> Iterator[None]:
        """Run one check. If something it needs is unavailable, note that and let the other checks run."""
        try:
            yield
        except Unavailable as error:
            self.could_not(what, error)


@dataclass(frozen=True)
class Lake:
    """The lake that is checked. `directory` holds files of a remote store while they are read; `say` shows progress."""

    index: Index
    store: ObjectStore
    directory: Path
    say: Callable[[str], None]

    def all_live(self, segments: Iterable[Segment]) -> bool:
        """Return whether none of these segments was replaced meanwhile."""
        ids = {segment.id for segment in segments}
        return self.index.inspect.still_live(ids) == ids


@dataclass(frozen=True)
class CheckScope:
    """Whose data is checked, and how thoroughly: `deep` reads everything, otherwise `seed` draws `sample` items."""

    organization: Organization
    deep: bool
    sample: int
    seed: int
    now_ns: int
    grace_seconds: float

    def finding(self, check: str, severity: str, what: str, where: str, to_do: str) -> Finding:
        return Finding(check, severity, self.organization.name, what, where, to_do)
