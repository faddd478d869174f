"""Segments' files on a worker's own disk, as the cache hands them out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from uuid import UUID

from lakerunner.model.errors import Unavailable
from lakerunner.plan.scan import Attribute
from lakerunner.query.account import Account
from lakerunner.query.footers import Footer

NO_END = 1 << 62  # of a range that goes to the last row, whatever its number: so it is the same in files of all sizes


class Vanished(Unavailable):
    """Someone removed files of the cache while they were used: what was about to be read is fetched again."""


@dataclass(frozen=True)
class HeldFile:
    """Only these rows may be read, half-open ranges of row numbers in order; None: all. What the file has elsewhere, or
    in other columns than the scan's, may be a hole. `unmapped` are those of the scan's attributes that none of these
    rows has in a map column."""

    path: Path
    rows: tuple[tuple[int, int], ...] | None = None
    unmapped: frozenset[Attribute] = frozenset()


@dataclass(frozen=True)
class Held:
    """`files` and their `footers` by segment id; a segment of which no row can matter has none. `account` says what was
    pruned, fetched and found here."""

    files: Mapping[UUID, HeldFile]
    footers: Mapping[UUID, Footer]
    account: Account
