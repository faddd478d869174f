"""The contract of an object store, and which strings are keys.

tests/suites/object_store.py tests every implementation of the contract.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from lakerunner.model.errors import UserError


@dataclass(frozen=True)
class ObjectMeta:
    """`etag` changes whenever the content does. A listing of local files leaves it None: there it is a digest of the
    content, which only `head` computes."""

    key: str
    size: int
    etag: str | None
    modified_ns: int


class SegmentStore(Protocol):
    """The part of a store that reading segments needs."""

    def get_range(self, key: str, start: int, length: int) -> memoryview:
        """Return exactly these bytes; raise Absent if there is no such object, Corrupt if it is shorter."""

    def local_path(self, key: str) -> Path | None:
        """Return the local file that is the object, which may only be read and linked to; None where objects are not
        local files. Raise Absent if there is no such object."""


class ObjectStore(SegmentStore, Protocol):
    """Keys are relative paths with '/' between parts, below the store's URL.

    Every call may raise Unavailable after its bounded retries: the store is down, try again later.
    """

    @property
    def bucket(self) -> str:
        """The name under which source objects are recorded; it stays the same when a local store is moved."""

    def put(self, key: str, data: bytes | memoryview, *, if_absent: bool = False) -> ObjectMeta | None:
        """Write the whole object, atomically and durably. Return what `head` would return, or None if that would take
        another request. `if_absent`: raise Conflict if the key exists."""

    def put_file(self, key: str, path: Path) -> None:
        """Write the content of this local file, as `put` does, without loading all of it into memory."""

    def get(self, key: str, *, max_bytes: int) -> memoryview:
        """Return the whole object. Raise Absent if there is none; TooLarge, before reading it, beyond max_bytes."""

    def fetch(self, key: str, *, max_bytes: int) -> tuple[ObjectMeta, memoryview]:
        """Return what `get` returns with the meta data of exactly that object, even if another replaces it
        meanwhile."""

    def head(self, key: str) -> ObjectMeta:
        """Return what is there now, etag included. Raise Absent if there is none."""

    def list(self, prefix: str, *, after: str | None = None) -> Iterator[ObjectMeta]:
        """Yield objects whose key starts with prefix (any string), in pages, in no particular order; only keys > after.
        An absent prefix is an empty listing. A listing that fails may have yielded objects twice."""

    def delete(self, keys: Iterable[str]) -> None:
        """Delete these objects. Absent keys are not an error: the sweeper may run twice."""


# ---- keys: relative paths that every store, and every file system, takes as they are

MAX_KEY_BYTES = 1024  # what S3, GCS and Azure allow

_PART = r"(?!\.{1,2}(?:/|\Z))[^/\x00-\x1f\x7f\ud800-\udfff]+"
_KEY = re.compile(rf"{_PART}(?:/{_PART})*")


def is_key(text: str) -> bool:
    return _KEY.fullmatch(text) is not None and len(text.encode()) <= MAX_KEY_BYTES


def checked_key(key: str) -> str:
    """Return the key, or raise a UserError that says what a key is."""
    if not is_key(key):
        raise UserError(
            f"invalid object key {key!r}: use 1 to {MAX_KEY_BYTES} bytes, '/' only between parts, "
            "no part empty, '.' or '..', no control characters"
        )
    return key
