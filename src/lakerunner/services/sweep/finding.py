"""What a sweep has found, and the contract of the chores that find and take it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Protocol
from uuid import UUID

from lakerunner.model.errors import Absent
from lakerunner.objects.store import ObjectMeta, ObjectStore

PAGE = 1000  # things in one page of findings, which bounds memory and transactions


class Kind(StrEnum):
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
    """One thing that goes, with the objects that go with it, and why; or, not `goes`, why it stays although one might
    think that it goes. `since_ns` is when it became what it is. `about` is for the chore that found it."""

    kind: Kind
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
class Found:
    """A page: so many things were looked at for these findings. It may be empty: finding can take long."""

    looked: int
    findings: tuple[Finding, ...] = ()


@dataclass(frozen=True)
class Gone:
    """`objects` and `bytes` of the store; `rows` of the index's tables."""

    objects: int = 0
    bytes: int = 0
    rows: tuple[tuple[str, int], ...] = ()


class Chore(Protocol):
    """Finding changes nothing. Taking checks again what may have changed since, deletes files before rows, and is
    quiet about what is gone already: it may have been killed at any point and be at it again."""

    @property
    def name(self) -> str:
        """For people and for progress."""

    def find(self, now_ns: int) -> Iterator[Found]: ...

    def take(self, findings: Sequence[Finding], now_ns: int) -> Gone:
        """Of one page, those that go."""


def is_unchanged(store: ObjectStore, meta: ObjectMeta) -> bool:
    """Whether the object is there as it was listed: someone may have written it again, or deleted it."""
    try:
        path = store.local_path(meta.key)
        if path is not None:
            status = path.stat()
            return (status.st_size, status.st_mtime_ns) == (meta.size, meta.modified_ns)
        now = store.head(meta.key)
    except (Absent, FileNotFoundError):
        return False
    return (now.size, now.etag) == (meta.size, meta.etag)
