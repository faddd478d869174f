"""Read the files of segments; of a remote store only the parts that are needed.

Comes in: a store and a key, with the expected size. Goes out: the actual size, a footer, or all rows, with the
checksums of pages verified, and page headers too if a query would check them. Corrupt says what is wrong with the file;
Absent means that it does not exist.
"""

from __future__ import annotations

import io
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from lakerunner.model.errors import Corrupt
from lakerunner.objects.store import ObjectStore, SegmentStore
from lakerunner.query.segment_cache.footers import read_footer
from lakerunner.query.segment_cache.pages import Chunks

_TAIL = 64 << 10  # holds most footers
_STEP = 8 << 20
_BATCH_ROWS = 20_000


def size_of(store: ObjectStore, key: str) -> int:
    """Return the size of an object; Absent if it does not exist. Unlike `head`, this does not read a local file."""
    path = store.local_path(key)
    return store.head(key).size if path is None else path.stat().st_size


def footer_of(store: ObjectStore, key: str, size: int) -> pq.FileMetaData:
    with _damage(key):
        return pq.read_metadata(pa.PythonFile(_Ranges(store, key, size), mode="r"))


@contextmanager
def opened(
    store: SegmentStore, key: str, size: int, directory: Path, *, checked: bool = False
) -> Iterator[pq.ParquetFile]:
    """Open the file, as a local copy if the store is remote. With `checked`, all pages are verified first, as for a
    query."""
    with local_file(store, key, size, directory) as path:
        if checked:
            for _, harm in _checked_groups(path, key):
                if harm is not None:
                    raise harm
        with _damage(key), pq.ParquetFile(path, page_checksum_verification=True) as file:
            yield file


@contextmanager
def local_file(store: SegmentStore, key: str, size: int, directory: Path) -> Iterator[Path]:
    """Yield a local file with the object; a copy is deleted afterwards."""
    path = store.local_path(key)
    copy = None
    if path is None:
        copy = path = directory / key.rpartition("/")[2]
        with path.open("wb") as out:
            for start in range(0, size, _STEP):
                out.write(store.get_range(key, start, min(_STEP, size - start)))
    try:
        yield path
    finally:
        if copy is not None:
            copy.unlink(missing_ok=True)


def sound_groups(path: Path, key: str) -> list[int]:
    """Return the row groups of the file whose pages are all intact. Corrupt if its footer is not."""
    with _damage(key):
        return [group for group, harm in _checked_groups(path, key) if harm is None]


def _checked_groups(path: Path, key: str) -> Iterator[tuple[int, Corrupt | None]]:
    """Yield each row group, and what is wrong with it."""
    footer = read_footer(path, key)
    with path.open("rb", buffering=0) as file:
        chunks = Chunks(file.fileno(), path.stat().st_size, footer)
        for group in range(footer.groups):
            try:
                for column in footer.leaves:
                    chunks.check(column, group)
                yield group, None
            except Corrupt as error:
                yield group, error


def batches(file: pq.ParquetFile, key: str, columns: list[str] | None = None) -> Iterator[pa.RecordBatch]:
    with _damage(key):
        yield from file.iter_batches(_BATCH_ROWS, columns=columns)


@contextmanager
def _damage(key: str) -> Iterator[None]:
    try:
        yield
    except (pa.ArrowException, OSError, ValueError) as error:
        said = " ".join(str(error).split()) or type(error).__name__
        raise Corrupt(f"{key}: {said}") from error


class _Ranges(io.RawIOBase):
    """An object of a store as a file with random access. Its end, which holds the footer, is fetched once."""

    def __init__(self, store: ObjectStore, key: str, size: int) -> None:
        super().__init__()
        self._store = store
        self._key = key
        self._size = size
        self._at = 0
        self._tail_at = max(0, size - _TAIL)
        self._tail: memoryview | None = None

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = 0) -> int:
        self._at = offset + {0: 0, 1: self._at, 2: self._size}[whence]
        return self._at

    def read(self, size: int = -1) -> bytes:
        end = self._size if size < 0 else min(self._size, self._at + size)
        start, self._at = self._at, max(self._at, end)
        if start >= end:
            return b""
        if start < self._tail_at:
            return bytes(self._store.get_range(self._key, start, end - start))
        if self._tail is None:
            self._tail = self._store.get_range(self._key, self._tail_at, self._size - self._tail_at)
        return bytes(self._tail[start - self._tail_at : end - self._tail_at])
