"""The cases that are known to fail, with their reasons. Tests also fail if a listed case passes."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Ledger:
    """Reasons by place, FILE:LINE."""

    entries: Mapping[str, str]

    @classmethod
    def read(cls, path: Path) -> Ledger:
        entries: dict[str, str] = {}
        for line in path.read_text().splitlines():
            if line.strip() and not line.startswith("#"):
                place, _, reason = line.partition(" ")
                if not reason.strip() or place in entries:
                    raise ValueError(f"{path.name}: {place} has no reason, or is there twice")
                entries[place] = reason.strip()
        return cls(entries)

    def wrong(self, failed: Mapping[str, str], ran: Iterable[Path]) -> list[str]:
        """Return where the ledger differs from the results of the files that ran."""
        files: Collection[str] = {path.name for path in ran}
        unlisted = [f"{place} fails and is not in the ledger" for place in failed if place not in self.entries]
        passing = [
            f"{place} is in the ledger ({reason}) and passes"
            for place, reason in self.entries.items()
            if place.rpartition(":")[0] in files and place not in failed
        ]
        return unlisted + passing
