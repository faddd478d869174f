"""Leases of the segment cache: local files of segments, as the cache hands them out."""

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
from lakerunner.query.contract.account import Account
from lakerunner.query.segment_cache.footers import Footer

NO_END = 1 << 62  # the end of a range up to the last row, so that such ranges are equal in files of any size


class Vanished(Unavailable):
    """Someone removed files of the cache while they were in use; the reader fetches them again."""


@dataclass(frozen=True)
class LeasedFile:
    """A local file. Only `rows` may be read, half-open ranges of row numbers in order; None: all. Other rows, and
    columns that the scan does not read, may be holes. `unmapped`: those of the scan's attributes that no map column
    holds in these rows. `empty`: columns that are null there, and maps that hold nothing of what the scan wants."""

    path: Path
    rows: tuple[tuple[int, int], ...] | None = None
    unmapped: frozenset[Attribute] = frozenset()
    empty: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Lease:
    """`files` and their `footers` by segment id, without segments that hold no matching row. `account` counts what was
    pruned, fetched and found in the cache."""

    files: Mapping[UUID, LeasedFile]
    footers: Mapping[UUID, Footer]
    account: Account


@contextmanager
def naming_segment(segment: Segment) -> Iterator[None]:
    """Raise errors inside the context as Corrupt with the segment's id, so that a partial answer can leave it out."""
    try:
        yield
    except (pa.ArrowException, OSError, ValueError, IndexError, Corrupt) as error:
        if isinstance(error, Corrupt) and error.segment:
            raise
        text = str(error)
        damaged = Corrupt(text if segment.path in text else f"{segment.path}: {text}")
        damaged.segment = segment.id
        raise damaged from error
