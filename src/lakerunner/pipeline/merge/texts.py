"""The text index of a merged segment of logs: pipeline/steps/text.py's file, from rows as they stand in segments.

Comes in: the row groups as they are written. Goes out: the index that ingest would have made of the same rows in the
same row groups. Strings among the records' attributes stand in columns of their own, or as typed JSON in the map.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numba import njit

from lakerunner.model.segment import Column
from lakerunner.model.signal import ATTRIBUTES
from lakerunner.pipeline.read.memory import PADDING
from lakerunner.pipeline.steps.text import Strings, TextIndexFile

_QUOTE, _BACKSLASH, _U, _SPACE = ord('"'), ord("\\"), ord("u"), ord(" ")


class TextSide:
    """`columns` of the merged segment tell strings from JSON. Where a column is not among them, JSON counts as a
    string: the index then finds no less."""

    def __init__(self, columns: Sequence[Column]) -> None:
        self._json = {column.name for column in columns if column.type == "json"}
        self._index = TextIndexFile()

    def add(self, batch: pa.RecordBatch) -> None:
        if batch.num_rows:
            self._index.add(_strings(batch.column("message")), *self._values(batch))

    def finish(self) -> pa.Buffer:
        return self._index.finish()

    def _values(self, batch: pa.RecordBatch) -> Iterator[Strings]:
        for field in batch.schema:
            kind = field.type.value_type if pa.types.is_dictionary(field.type) else field.type
            if field.name.startswith(ATTRIBUTES.prefix) and kind == pa.string() and field.name not in self._json:
                yield _strings(batch.column(field.name))
        maps = batch.column(ATTRIBUTES.map_column)
        first, last = maps.offsets[0].as_py(), maps.offsets[-1].as_py()
        texts = _strings(maps.items.slice(first, last - first))
        yield Strings(texts.data, *_unquoted(*texts))


def _strings(array: pa.Array) -> Strings:
    """The texts of this array, those of a dictionary once."""
    if pa.types.is_dictionary(array.type):
        array = array.dictionary.take(pc.unique(array.indices).drop_null())
    array = array.drop_null()
    _, offsets, body = array.buffers()
    if not len(array) or body is None:
        return Strings(np.zeros(PADDING, np.uint8), np.zeros(len(array), np.int32), np.zeros(len(array), np.int32))
    ends = np.frombuffer(offsets, np.int32)[array.offset : array.offset + len(array) + 1]
    data = np.zeros(int(ends[-1] - ends[0]) + PADDING, np.uint8)
    data[:-PADDING] = np.frombuffer(body, np.uint8)[ends[0] : ends[-1]]
    return Strings(data, ends[:-1] - ends[0], np.diff(ends))


@njit(cache=True)
def _unquoted(data: Any, at: Any, size: Any) -> Any:
    """(at, size) of the strings among these typed JSON texts, without their quotes. What was escaped in them, which no
    token and no run has in it, becomes spaces, in place."""
    starts, sizes = np.empty(len(at), np.int32), np.empty(len(at), np.int32)
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
