"""A text index finds every text of its segment.

Comes in: the side file `text.bin`, and the rows that it is of. Goes out: what is wrong with it.
What always holds: an index that passes leaves out no row group that holds a text; one that finds too much, which costs
time only, passes too. A row group is in memory at a time.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow.parquet as pq

from lakerunner.model.errors import Corrupt
from lakerunner.model.segment import Column
from lakerunner.model.signal import ATTRIBUTES
from lakerunner.model.text_index import HEADER, TextIndex
from lakerunner.pipeline.sides.text_index import TextIndexSide

_READ = ("message", ATTRIBUTES.map_column)  # and the columns of single attributes


def text_troubles(stored: bytes | memoryview, columns: Sequence[Column], file: pq.ParquetFile) -> Iterator[str]:
    """`file` is the segment's, whose pages are as they should be."""
    try:
        there = TextIndex(stored)
    except Corrupt as error:
        yield f"this side file cannot be read: {error}"
        return
    made = _made_anew(columns, file)
    wanted = TextIndex(made)
    if _sure(stored) != _sure(made):
        yield "this text index does not match the row groups or hashing of its segment"
    elif len(there.bits) == len(wanted.bits) and (lost := _lost(there.bits, wanted.bits)):
        yield f"this text index lacks {lost} bits of the texts of its segment: searches miss these texts"


def _made_anew(columns: Sequence[Column], file: pq.ParquetFile) -> bytes:
    side = TextIndexSide(columns)
    names = [name for name in file.schema_arrow.names if name in _READ or name.startswith(ATTRIBUTES.prefix)]
    for group in range(file.num_row_groups):
        for batch in file.read_row_group(group, columns=names).combine_chunks().to_batches():
            side.add(batch)
    return bytes(side.finish().data)


def _sure(file: bytes | memoryview) -> tuple[int, ...]:
    """What does not hang on how often texts were counted: with very many in a row group that depends on their order,
    and then sizes may differ."""
    _magic, _version, _nothing, groups, *sizes = HEADER.unpack_from(file)
    return groups, *sizes[1::2]


def _lost(stored: memoryview, made: memoryview) -> int:
    there, wanted = (np.frombuffer(bits, np.uint8) for bits in (stored, made))
    return int(np.bitwise_count(wanted & ~there).sum())
