"""What a sweep finds, the contract of the chores that find and delete it, and the names of the files of segments.

A file of a segment is named `db/{org}/{collector}/{yyyymmdd}/{signal}/{hh}/tbl_{id}.parquet`, or with another ending
for a side file. What always holds: an object with any other name is not ours, and no sweep deletes it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Protocol
from uuid import UUID

from lakerunner.model.errors import Absent, Unavailable
from lakerunner.model.organization import NAME, RULE_PREFIX
from lakerunner.model.source import SEGMENT_PREFIX, SIGNAL_NAMES
from lakerunner.objects.store import ObjectMeta, ObjectStore

LISTING_PAGE = 1000  # objects of a listing that are handled at a time
PAGE = 1000  # findings in one page, which bounds memory and transactions


class SweepKind(StrEnum):
    PAST = "past retention"
    REPLACED = "replaced"
    EXPIRED = "expired"
    ORPHAN = "orphan"
    UPLOAD = "upload"
    RAW = "raw"
    PUSH = "push"
    WORK = "failed work"


@dataclass(frozen=True)
class Finding:
    """One thing that is to be deleted, with its objects and the reason; or, if not `goes`, the reason why it stays
    although one might expect it to be deleted. `since_ns` is when it became what it is. `about` is for the chore that
    found it."""

    kind: SweepKind
    what: str
    reason: str
    since_ns: int
    organization: UUID | None = None
    keys: tuple[str, ...] = ()
    bytes: int = 0
    count: int = 1
    goes: bool = True
    about: Any = field(default=None, compare=False, repr=False)


@dataclass(frozen=True)
class FindingPage:
    """A page of findings, and how many things were examined for them. It may be empty, to show progress."""

    looked: int
    findings: tuple[Finding, ...] = ()


@dataclass(frozen=True)
class Removal:
    """What was deleted: `objects` and `bytes` of the store, `rows` by table of the index."""

    objects: int = 0
    bytes: int = 0
    rows: tuple[tuple[str, int], ...] = ()


class Chore(Protocol):
    """One part of a sweep. `find` changes nothing. `take` checks again what may have changed since, deletes files
    before rows, and ignores what is gone already: an earlier sweep may have been killed at any point."""

    @property
    def name(self) -> str:
        """Return the name for reports and progress."""

    def find(self, now_ns: int) -> Iterator[FindingPage]: ...

    def take(self, findings: Sequence[Finding], now_ns: int) -> Removal:
        """Delete those findings of one page that are to be deleted."""


def is_unchanged(store: ObjectStore, meta: ObjectMeta) -> bool:
    """Return whether the object is still as it was listed: it may have been overwritten or deleted."""
    try:
        path = store.local_path(meta.key)
        if path is not None:
            status = path.stat()
            return (status.st_size, status.st_mtime_ns) == (meta.size, meta.modified_ns)
        now = store.head(meta.key)
    except (Absent, FileNotFoundError):
        return False
    return (now.size, now.etag) == (meta.size, meta.etag)


_UUID = r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"
_FILE = re.compile(
    rf"{SEGMENT_PREFIX}{_UUID}/{RULE_PREFIX}?{NAME.pattern}/\d{{8}}/(?P<signal>{'|'.join(SIGNAL_NAMES)})/\d\d/"
    rf"tbl_(?P<id>{_UUID})\.[a-z0-9._]+"
)


def segment_in(key: str) -> UUID | None:
    """Return the id of the segment that the object belongs to; None if it is not a file of a segment."""
    found = _FILE.fullmatch(key)
    return UUID(found["id"]) if found else None


def signal_in(key: str) -> str:
    found = _FILE.fullmatch(key)
    return found["signal"] if found else ""


def listing_pages(metas: Iterable[ObjectMeta]) -> Iterator[list[ObjectMeta]]:
    """Yield the objects of a listing in pages. If the listing fails, the objects before the failure are yielded
    first."""
    page: list[ObjectMeta] = []
    failure: Unavailable | None = None
    try:
        for meta in metas:
            page.append(meta)
            if len(page) == LISTING_PAGE:
                yield page
                page = []
    except Unavailable as error:
        failure = error
    if page:
        yield page
    if failure:
        raise failure
