"""Column chunks of held files that are sound: their pages were checked (query/pages.py) since they came here.

Comes in: a file, of which these columns are there in these row groups. Goes out: nothing, or Corrupt with the object's
key, the column and the row group. What always holds: each chunk is checked before it is first read, and once: what was
checked is remembered with the file, as long as it stays here. A file that is linked and not copied is the store's own,
which someone may write to: then all of it is checked again.
"""

from __future__ import annotations

import os
from collections.abc import Iterable

from lakerunner.model.errors import Corrupt
from lakerunner.query.files import CachedFile
from lakerunner.query.footers import TRAILER, Footer
from lakerunner.query.pages import check_pages
from lakerunner.query.spans import Span, joined, without


def check_chunks(file: CachedFile, footer: Footer, columns: Iterable[str], groups: list[Span]) -> None:
    """`groups` are ranges of row groups."""
    sound = file.sound  # of the bytes that are here now: when these are forgotten, those that follow have another
    written_ns = os.stat(file.path).st_mtime_ns if file.linked else 0
    missing = [column for column in columns if sound.get((column, written_ns)) != groups]  # mostly none, and at once
    new = [(column, left) for column in missing if (left := without(groups, sound.get((column, written_ns), ())))]
    if not new:
        return
    with file.path.open("rb", buffering=0) as opened:
        chunks = Chunks(opened.fileno(), file.object.bytes, footer)
        for column, left in new:
            for first, end in left:
                for group in range(first, end):
                    _check(chunks, column, group, file.object.key)
            sound[column, written_ns] = joined([*sound.get((column, written_ns), ()), *left])


def _check(chunks: Chunks, column: str, group: int, key: str) -> None:
    try:
        chunks.check(column, group)
    except Corrupt as error:
        raise Corrupt(
            f"{key} is damaged in {error}. Run `lakerunner fsck --deep` to find other damage and how to repair it"
        ) from error


class Chunks:
    """Of an open file of so many bytes."""

    def __init__(self, descriptor: int, bytes_: int, footer: Footer) -> None:
        self._descriptor = descriptor
        self._bytes = bytes_
        self._footer = footer
        self._stored = self._read(bytes_ - footer.bytes, bytes_ - TRAILER)

    def check(self, column: str, group: int) -> None:
        """Corrupt with the column and the row group, for a page that is not as it was written."""
        for leaf, span in zip(self._footer.leaves.get(column, ()), self._footer.chunks(column)[group], strict=True):
            try:
                check_pages(self._read(*span), self._footer.chunk(group, leaf), self._stored)
            except Corrupt as error:
                raise Corrupt(f"column {column}, row group {group}: {error}") from error

    def _read(self, start: int, end: int) -> bytes:
        """In memory and not mapped: a file that is cut meanwhile would end the process."""
        if not 0 <= start <= end <= self._bytes:
            raise Corrupt("footer points outside of the file")
        return os.pread(self._descriptor, end - start, start)
