"""Check that every live segment of the index has its files, and that they are what the index says.

Comes in: the live segments of an organization. Goes out: findings about the Parquet file and its side files: they must
exist and have the size, rows, columns and times of the index, and the file must declare the order of its rows. With
`deep`, every page is read and its checksum verified, times and order are checked row by row, and text indexes must have
all texts.

What always holds: a segment that was replaced while it was checked is not a finding.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from lakerunner.model.display import plural
from lakerunner.model.errors import Absent, Corrupt, Unavailable
from lakerunner.model.segment import Column, Segment
from lakerunner.model.signal import ATTRIBUTES, spec_of
from lakerunner.model.streams.stream_table import STREAM_TABLE
from lakerunner.model.text_index import HEADER, SIDE_FILE, TextIndex
from lakerunner.model.time import iso_time
from lakerunner.pipeline.segment.text_index import TextIndexSide
from lakerunner.services.checks.finding import ERROR, CheckScope, Findings, Lake
from lakerunner.services.checks.segment_reading import batches, footer_of, opened, size_of
from lakerunner.services.checks.stream_table_check import stream_troubles

_READ = ("message", ATTRIBUTES.map_column)  # and the columns of single attributes
CHECK = "files"
_AT_ONCE = 8


class Harm(StrEnum):
    """What is wrong with a segment. `DIFFERS`: the whole file can be read, but it does not match the index."""

    FILE_MISSING = "file is missing"
    FILE_DAMAGED = "file is damaged"
    SIDE_MISSING = "side file is missing"
    SIDE_DAMAGED = "side file is damaged"
    DIFFERS = "file and index differ"


_TO_DO = {
    Harm.FILE_MISSING: "`lakerunner repair` ingests its rows again, or restore the file from a copy",
    Harm.FILE_DAMAGED: "`lakerunner repair` ingests its rows again, or restore the file from a copy",
    Harm.SIDE_MISSING: "`lakerunner repair` makes it again, or restore the file from a copy",
    Harm.SIDE_DAMAGED: "`lakerunner repair` makes it again, or restore the file from a copy",
    Harm.DIFFERS: "report it with the ids: they should agree. `lakerunner repair` ingests its rows again",
}


@dataclass(frozen=True)
class Trouble:
    """One thing that is wrong with a file; `where` is its key."""

    harm: Harm
    what: str
    where: str


def check_files(lake: Lake, scope: CheckScope, found: Findings) -> None:
    total = lake.index.inspect.count_live(scope.organization.id)
    done = 0
    # A deep check is bound by memory: one file at a time. Otherwise it waits for answers of the store.
    with ThreadPoolExecutor(1 if scope.deep else _AT_ONCE) as threads:
        for page in lake.index.inspect.live(scope.organization.id):
            troubles = list(threads.map(lambda segment: _check_segment_files(lake, scope, segment, found), page))
            _report(lake, scope, page, troubles, found)
            done += len(page)
            lake.say(f"{scope.organization.name}: files of {done} of {plural(total, 'segment')}")


def _check_segment_files(lake: Lake, scope: CheckScope, segment: Segment, found: Findings) -> list[Trouble]:
    try:
        return list(troubles_of(lake, segment, deep=scope.deep))
    except Unavailable as error:
        found.could_not(f"files of {scope.organization.name}", error)
        return []


def _report(lake: Lake, scope: CheckScope, page: list[Segment], troubles: list[list[Trouble]], found: Findings) -> None:
    """Report what is wrong with those segments that are still live."""
    amiss = [segment.id for segment, trouble in zip(page, troubles, strict=True) if trouble]
    live = lake.index.inspect.still_live(amiss) if amiss else set()
    for segment, some in zip(page, troubles, strict=True):
        found.looked_at["segments"] += 1
        found.looked_at["side files"] += len(_sides(segment))
        found.looked_at["bytes of segments"] += segment.bytes
        if scope.deep:
            found.looked_at["rows read"] += segment.rows
        for one in some if segment.id in live else []:
            found.add(scope.finding(CHECK, ERROR, one.what, one.where, _TO_DO[one.harm]))


def troubles_of(lake: Lake, segment: Segment, *, deep: bool) -> Iterator[Trouble]:
    """Yield what is wrong with the files of one segment; `deep` reads all of them."""
    for name, size in _sides(segment).items():
        yield from _side_troubles(lake, segment.side_path(name), size, deep)
    key = segment.path
    missing = Trouble(
        Harm.FILE_MISSING, f"the file of a live segment with {plural(segment.rows, 'row')} is missing", key
    )
    try:
        size = size_of(lake.store, key)
    except Absent:
        yield missing
        return
    if size != segment.bytes:
        yield Trouble(Harm.FILE_DAMAGED, f"it has {size} bytes, {segment.bytes} in the index", key)
        return
    try:
        footer = footer_of(lake.store, key, size)
        yield from (Trouble(Harm.DIFFERS, what, key) for what in _footer_troubles(segment, footer))
        if deep:
            yield from _deep_troubles(lake, segment)
    except Absent:
        yield missing
    except Corrupt as error:
        yield Trouble(Harm.FILE_DAMAGED, f"cannot be read: {_shorten_error(error, key)}", key)


def _sides(segment: Segment) -> dict[str, int]:
    return dict(segment.statistics.get("side_bytes", {}))


def _side_troubles(lake: Lake, key: str, stated: int, deep: bool) -> Iterator[Trouble]:
    try:
        size = size_of(lake.store, key)
        if size != stated:
            yield Trouble(Harm.SIDE_DAMAGED, f"this side file has {size} bytes, {stated} in the index", key)
        elif deep and key.endswith(".parquet"):
            with opened(lake.store, key, size, lake.directory) as file:
                for _ in batches(file, key):
                    pass
    except Absent:
        yield Trouble(Harm.SIDE_MISSING, "a side file of a live segment is missing", key)
    except Corrupt as error:
        yield Trouble(Harm.SIDE_DAMAGED, f"this side file cannot be read: {_shorten_error(error, key)}", key)


def _footer_troubles(segment: Segment, footer: pq.FileMetaData) -> Iterator[str]:
    spec = spec_of(segment.signal, segment.frequency_ms)
    if footer.num_rows != segment.rows:
        yield f"it has {plural(footer.num_rows, 'row')}, {segment.rows} in the index"
    schema = footer.schema.to_arrow_schema()
    stated = [column.name for column in segment.columns]
    if schema.names != stated:
        yield f"its columns differ from the index: {_describe_difference(schema.names, stated)}"
    groups = [footer.row_group(number) for number in range(footer.num_row_groups)]
    leaves = {footer.schema.column(leaf).path: leaf for leaf in range(len(footer.schema))}
    order = [leaves.get(name) for name in spec.sort_by]
    if any([one.column_index for one in group.sorting_columns or ()] != order for group in groups):
        yield f"the sort order of its rows is not declared: expected {', '.join(spec.sort_by)}"
    if "timestamp" in leaves:
        statistics = [group.column(leaves["timestamp"]).statistics for group in groups]
        if statistics and all(one is not None and one.has_min_max for one in statistics):
            yield from _time_troubles(
                segment, min(one.min_raw for one in statistics), max(one.max_raw for one in statistics)
            )


def _deep_troubles(lake: Lake, segment: Segment) -> Iterator[Trouble]:
    """Yield what is wrong inside the file, and with its text index and its table of streams, which are made again from
    the rows."""
    with opened(lake.store, segment.path, segment.bytes, lake.directory, checked=True) as file:
        yield from (Trouble(Harm.DIFFERS, what, segment.path) for what in _row_troubles(segment, file))
        for name, troubles in ((SIDE_FILE, text_troubles), (STREAM_TABLE, stream_troubles)):
            if (stored := _side_file(lake, segment, name)) is not None:
                key = segment.side_path(name)
                yield from (Trouble(Harm.SIDE_DAMAGED, what, key) for what in troubles(stored, segment.columns, file))


def _side_file(lake: Lake, segment: Segment, name: str) -> memoryview | None:
    """Return a side file; None if there is none, or its size is wrong, which `_side_troubles` reports."""
    size = _sides(segment).get(name)
    with suppress(Absent, Corrupt):
        return None if size is None else lake.store.get_range(segment.side_path(name), 0, size)
    return None


def _row_troubles(segment: Segment, file: pq.ParquetFile) -> Iterator[str]:
    """Yield what is wrong with the number, times and order of the rows."""
    sort_by = spec_of(segment.signal, segment.frequency_ms).sort_by
    rows, first, last, unordered = 0, None, None, 0
    before: pa.RecordBatch | None = None
    for batch in batches(file, segment.path):
        times = batch.column("timestamp").cast(pa.int64())
        low, high = pc.min_max(times).values()
        first = low.as_py() if first is None else min(first, low.as_py())
        last = high.as_py() if last is None else max(last, high.as_py())
        keys = batch.select(list(sort_by))
        unordered += _unordered(keys if before is None else _join_batches(before, keys))
        before = keys.slice(keys.num_rows - 1)
        rows += batch.num_rows
    if rows != segment.rows:
        yield f"{plural(rows, 'row')} can be read, {segment.rows} in the index"
    if unordered:
        yield f"{unordered} of its rows are not in order: expected order is {', '.join(sort_by)}"
    if first is not None and last is not None:
        yield from _time_troubles(segment, first, last)


def _join_batches(before: pa.RecordBatch, keys: pa.RecordBatch) -> pa.RecordBatch:
    return pa.Table.from_batches([before, keys]).combine_chunks().to_batches()[0]


def _unordered(keys: pa.RecordBatch) -> int:
    """Return how many rows sort before the row that precedes them."""
    equal = np.ones(max(0, keys.num_rows - 1), bool)
    less = ~equal
    for column in keys.columns:
        one, next_ = column.slice(0, len(column) - 1), column.slice(1)
        less |= equal & pc.greater(one, next_).to_numpy(zero_copy_only=False)
        equal &= pc.equal(one, next_).to_numpy(zero_copy_only=False)
    return int(less.sum())


def _time_troubles(segment: Segment, first: int, last: int) -> Iterator[str]:
    if (first, last + 1) != (segment.time.start_ns, segment.time.end_ns):
        stated = f"{iso_time(segment.time.start_ns)} to {iso_time(segment.time.end_ns - 1)}"
        yield f"its rows are from {iso_time(first)} to {iso_time(last)}, in the index {stated}"


def _describe_difference(there: list[str], stated: list[str]) -> str:
    more, less = [name for name in there if name not in stated], [name for name in stated if name not in there]
    parts = [f"{kind} {', '.join(names[:5])}" for kind, names in (("also", more), ("without", less)) if names]
    if parts:
        return "; ".join(parts)
    swapped = next((pair for pair in pairwise(there) if stated.index(pair[0]) > stated.index(pair[1])), ("", ""))
    return f"different order, {swapped[0]} before {swapped[1]}"


def _shorten_error(error: Exception, key: str) -> str:
    return str(error).removeprefix(f"{key}: ")


def text_troubles(stored: bytes | memoryview, columns: Sequence[Column], file: pq.ParquetFile) -> Iterator[str]:
    """Yield what is wrong with a text index. An index that passes never skips a row group that holds a text; one that
    matches too many passes too, since that only costs time. One row group is in memory at a time. `file` is the
    segment's, whose pages have been checked."""
    try:
        there = TextIndex(stored)
    except Corrupt as error:
        yield f"this side file cannot be read: {error}"
        return
    made = _rebuild_text_index(columns, file)
    wanted = TextIndex(made)
    if _fixed_fields(stored) != _fixed_fields(made):
        yield "this text index does not match the row groups or hashing of its segment"
    elif len(there.bits) == len(wanted.bits) and (lost := _lost(there.bits, wanted.bits)):
        yield f"this text index lacks {lost} bits of the texts of its segment: searches miss these texts"


def _rebuild_text_index(columns: Sequence[Column], file: pq.ParquetFile) -> bytes:
    side = TextIndexSide(columns)
    names = [name for name in file.schema_arrow.names if name in _READ or name.startswith(ATTRIBUTES.prefix)]
    for group in range(file.num_row_groups):
        for batch in file.read_row_group(group, columns=names).combine_chunks().to_batches():
            side.add(batch)
    return bytes(side.finish().data)


def _fixed_fields(file: bytes | memoryview) -> tuple[int, ...]:
    """Return the parts of the header that must be equal. Sizes may differ: with very many texts in a row group, their
    count depends on their order."""
    _magic, _version, _nothing, groups, *sizes = HEADER.unpack_from(file)
    return groups, *sizes[1::2]


def _lost(stored: memoryview, made: memoryview) -> int:
    there, wanted = (np.frombuffer(bits, np.uint8) for bits in (stored, made))
    return int(np.bitwise_count(wanted & ~there).sum())
