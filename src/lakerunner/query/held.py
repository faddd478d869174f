"""Segments' files on a worker's own disk, as the cache hands them out."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from uuid import UUID

import pyarrow as pa

from lakerunner.model.errors import Corrupt, Unavailable
from lakerunner.model.segment import Segment
from lakerunner.model.signal import Attribute
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


@contextmanager
def explained(segment: Segment) -> Iterator[None]:
    """Raise what goes wrong inside as Corrupt that names the segment: a partial answer leaves that one out."""
    try:
        yield
    except (pa.ArrowException, OSError, ValueError, IndexError, Corrupt) as error:
        if isinstance(error, Corrupt) and error.segment:
            raise
        text = str(error)
        damaged = Corrupt(text if segment.path in text else f"{segment.path}: {text}")
        damaged.segment = segment.id
        raise damaged from error
