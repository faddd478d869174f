"""The contract of an object store. tests/suites/object_store.py holds every implementation to it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol


@dataclass(frozen=True)
class ObjectMeta:
    """`etag` changes whenever the content does. A listing of local files leaves it None: there it is a
    digest of the content, which only `head` pays for."""

    key: str
    size: int
    etag: str | None
    modified_ns: int


class SegmentStore(Protocol):
    """What reading segments takes of a store."""

    def get_range(self, key: str, start: int, length: int) -> memoryview:
        """These bytes exactly; Absent if there is no such object, Corrupt if it is shorter."""

    def local_path(self, key: str) -> Path | None:
        """The file of this machine that is the object, to be read and linked to only; Absent if there is no such
        object. None where objects are not files of this machine."""


class ObjectStore(SegmentStore, Protocol):
    """Keys are relative paths with '/' between parts, below the store's URL.

    Every call may raise Unavailable after its bounded retries: the store is away, try again later.
    """

    @property
    def bucket(self) -> str:
        """The name that source objects are recorded under; the same after a local store has moved."""

    def put(self, key: str, data: bytes | memoryview, *, if_absent: bool = False) -> ObjectMeta | None:
        """Write the whole object, atomically and durably; return what `head` says of it, or None where the store would
        have to be asked for that. `if_absent`: Conflict if the key exists."""

    def put_file(self, key: str, path: Path) -> None:
        """As `put`, with what this file of the machine holds, which is never in memory as a whole."""

    def get(self, key: str, *, max_bytes: int) -> memoryview:
        """The whole object. Absent if there is none; TooLarge, before reading it, beyond max_bytes."""

    def fetch(self, key: str, *, max_bytes: int) -> tuple[ObjectMeta, memoryview]:
        """As `get`, with what `head` says of the object that these bytes are, even if another takes its place."""

    def head(self, key: str) -> ObjectMeta:
        """What is there now, etag included. Absent if there is none."""

    def list(self, prefix: str, *, after: str | None = None) -> Iterator[ObjectMeta]:
        """Objects whose key starts with prefix (any string), in pages, order unspecified; only keys > after.
        An absent prefix is an empty listing. One that fails may have named objects twice."""

    def delete(self, keys: Iterable[str]) -> None:
        """Absent keys are not an error: the sweeper may run twice."""
