"""Build the text index of a log segment: docs/formats/text_index.md states the file, model/text_index.py reads it.

Comes in: the segment's row groups. Goes out: for each row group the tokens, grams of ids and trigrams of its messages,
and the grams of ids of the strings among its records' own attributes. These strings are in columns of their own, or as
typed JSON in the map. The same rows in the same row groups give the same bytes.

The entries of a row group are kept as hashes, on disk if they are many, until the largest row group determines the size
of all blooms.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Sequence
from tempfile import SpooledTemporaryFile
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakerunner.kernel_cache import njit
from lakerunner.model.segment import Column
from lakerunner.model.signal import ATTRIBUTES
from lakerunner.model.text_index import BLOOMS, CHECKSUM, HEADER, MAGIC, VERSION
from lakerunner.pipeline.segment.text_entries import Strings, find_entries
from lakerunner.pipeline.segment.writer import SideFile
from lakerunner.pipeline.steps.arrow_columns import padded_texts

HASHES_IN_MEMORY = 32 << 20  # bytes; a segment that ingest makes seldom has more
# How many row groups are set at once in a compact array: their places in the file are far apart, row after row.
_TOGETHER = 32
_QUOTE, _BACKSLASH, _U, _SPACE = ord('"'), ord("\\"), ord("u"), ord(" ")


class TextIndexSide:
    """Builds the text index. `columns` of the segment tell strings from JSON. In a column that is not among them, JSON
    counts as a string: the index then finds no less."""

    def __init__(self, columns: Sequence[Column]) -> None:
        self._json = {column.name for column in columns if column.type == "json"}
        self._hashes = SpooledTemporaryFile(HASHES_IN_MEMORY)  # noqa: SIM115 - closed when it is read
        # How many hashes each row group has of each kind; None if too many.
        self._counts: list[list[int | None]] = []

    def add(self, batch: pa.RecordBatch) -> None:
        if not batch.num_rows:
            return
        counts: list[int | None] = []
        for hashes in find_entries(_strings(batch.column("message")), tuple(self._values(batch))):
            counts.append(None if hashes is None else len(hashes))
            if hashes is not None:
                self._hashes.write(hashes.data)
        self._counts.append(counts)

    def finish(self) -> SideFile:
        groups = len(self._counts)
        most = [max(1 if count is None else count for count in of_kind) for of_kind in zip(*self._counts, strict=True)]
        rows = [bloom.bits * entries for bloom, entries in zip(BLOOMS, most, strict=True)]
        ends = np.cumsum([HEADER.size, *(-(-of_kind * groups // 8) for of_kind in rows)]).tolist()
        file = np.zeros(ends[-1] + CHECKSUM.size, np.uint8)
        sizes = [size for of_kind, bloom in zip(rows, BLOOMS, strict=True) for size in (of_kind, bloom.probes)]
        HEADER.pack_into(file.data, 0, MAGIC, VERSION, 0, groups, *sizes)
        with self._hashes as hashes:
            hashes.seek(0)
            for start in range(0, groups, _TOGETHER):
                columns = [np.zeros(of_kind, np.uint32) for of_kind in rows]
                for column, counts in enumerate(self._counts[start : start + _TOGETHER]):
                    for kind, count in enumerate(counts):
                        if count is None:
                            columns[kind] |= np.uint32(1 << column)
                        else:
                            found = np.frombuffer(hashes.read(8 * count), np.uint64)
                            _set_bits(columns[kind], found, BLOOMS[kind].probes, column)
                for kind, of_kind in enumerate(columns):
                    _place_columns(file[ends[kind] : ends[kind + 1]], of_kind, start, groups)
        CHECKSUM.pack_into(file.data, ends[-1], zlib.crc32(file.data[: ends[-1]]))
        return SideFile(pa.py_buffer(file))

    def _values(self, batch: pa.RecordBatch) -> Iterator[Strings]:
        """Yield the strings among the records' own attributes."""
        for field in batch.schema:
            kind = field.type.value_type if pa.types.is_dictionary(field.type) else field.type
            if field.name.startswith(ATTRIBUTES.prefix) and kind == pa.string() and field.name not in self._json:
                yield _strings(batch.column(field.name))
        maps = batch.column(ATTRIBUTES.map_column)
        first, last = maps.offsets[0].as_py(), maps.offsets[-1].as_py()
        texts = _strings(maps.items.slice(first, last - first))
        yield Strings(texts.data, *_unquoted(*texts))


def _strings(array: pa.Array) -> Strings:
    """Return the texts of this array, those of a dictionary once."""
    if pa.types.is_dictionary(array.type):
        array = array.dictionary.take(pc.unique(array.indices).drop_null())
    return Strings(*padded_texts(array.drop_null()))


@njit(cache=True)
def _unquoted(data: Any, at: Any, size: Any) -> Any:
    """Return (at, size) of the strings among these typed JSON texts, without their quotes. Escapes, which no token and
    no run contains, are overwritten with spaces."""
    starts, sizes = np.empty(len(at), np.int64), np.empty(len(at), np.int64)
    count = 0
    for place in range(len(at)):
        if size[place] < 2 or data[at[place]] != _QUOTE:
            continue
        start, end = at[place] + 1, at[place] + size[place] - 1
        starts[count], sizes[count] = start, end - start
        count += 1
        while start < end:
            step = 1
            if data[start] == _BACKSLASH:
                step = 6 if data[start + 1] == _U else 2
                for escaped in range(start, min(start + step, end)):
                    data[escaped] = _SPACE
            start += step
    return starts[:count], sizes[:count]


@njit(cache=True)
def _set_bits(columns: Any, hashes: Any, probes: Any, column: Any) -> Any:
    """Set the bits of these hashes in one of the columns; each element of `columns` is a row of up to 32 bits."""
    rows, bit = np.uint64(len(columns)), np.uint32(1) << np.uint32(column)
    for value in hashes:
        low, step = value & np.uint64(0xFFFFFFFF), value >> np.uint64(32) | np.uint64(1)
        for _ in range(probes):
            columns[np.int64((low * rows) >> np.uint64(32))] |= bit
            low = (low + step) & np.uint64(0xFFFFFFFF)


@njit(cache=True)
def _place_columns(bits: Any, columns: Any, first: Any, groups: Any) -> Any:
    """Write these columns as those of the row groups from `first` on."""
    for row in range(len(columns)):
        bit = row * groups + first
        left = np.uint64(columns[row]) << np.uint64(bit & 7)
        byte = bit >> 3
        while left:
            bits[byte] |= np.uint8(left & np.uint64(0xFF))
            left >>= np.uint64(8)
            byte += 1
