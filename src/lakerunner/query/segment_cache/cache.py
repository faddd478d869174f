"""The segment cache of a worker: what a scan reads of its segments, on the local disk. See docs/formats/cache.md.

Input: a scan and segments. Output: a lease with a local file for each segment that may hold a matching row, and the
rows of it that may be read. Invariants: for these rows the file holds everything that the scan's relation
(relation.py) reads, so a reader never sees a hole; all other segments and row groups hold no row that the scan needs;
files stay in place while they are leased.

Segments are examined in steps, and each step sends the requests of all segments at once: the text index, where it can
help; the footer; then the chunks of needed columns in needed row groups, or the whole file where that is most of it.
"""

from __future__ import annotations

import logging
import mmap
import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TypeVar
from uuid import UUID

import pyarrow as pa

from lakerunner.model.condition import AnyOf, Leaf
from lakerunner.model.errors import Corrupt, LakerunnerError, TooLarge, UserError
from lakerunner.model.lru import LruCache
from lakerunner.model.segment import Segment
from lakerunner.model.signal import signal_named
from lakerunner.model.streams.stream_table import STREAM_TABLE, read_stream_table
from lakerunner.model.text_index import SIDE_FILE, TextIndex
from lakerunner.objects.store import SegmentStore
from lakerunner.plan.scan import Scan
from lakerunner.query.contract.account import Account
from lakerunner.query.segment_cache.files import CachedFile, Files, OwnDirectory, StoredObject
from lakerunner.query.segment_cache.footers import Footer, footer_bytes, read_footer
from lakerunner.query.segment_cache.lease import NO_END, Lease, LeasedFile, Vanished
from lakerunner.query.segment_cache.pages import check_chunks
from lakerunner.query.segment_cache.prune import (
    BLOOM_FILTER,
    NEUTRAL,
    STATISTICS,
    TEXT_INDEX,
    RowGroupChoice,
    TextFindings,
    TextQuestions,
    bloom_hash,
    choose_groups,
    empty_columns,
    ids_of,
    may_hold,
    pruned_groups,
    unmapped,
)
from lakerunner.query.segment_cache.relation import Projections
from lakerunner.query.segment_cache.spans import Span, joined, size, without

_GLOB_SIGNS = "*?["
_INDEX_LEAST = 64 << 10  # the least a mapped file counts, which bounds the number of mappings
_SMALL = 256 << 10  # segments up to this size are fetched whole by the first request
_TAIL_LEAST = 64 << 10
_CHUNK_IN_FOOTER = 160  # bytes that one column chunk takes in a footer, roughly
# In the order in which reasons are reported for a segment whose row groups were all pruned: the last test first.
_PRUNING_ORDER = (BLOOM_FILTER, TEXT_INDEX, STATISTICS)
_NO_INDEX = "a text index cannot be used"
_logger = logging.getLogger("lakerunner.query.segment_cache.cache")
T = TypeVar("T")


@dataclass(frozen=True)
class _OpenedSegment:
    """A segment whose footer was read; `reasons` says for each pruned row group what pruned it."""

    segment: Segment
    file: CachedFile
    footer: Footer
    reasons: dict[int, str]


@dataclass(frozen=True)
class _SegmentNeeds:
    """What is needed of one segment. `bytes` counts the spans before they are widened for speed. `groups` are the row
    groups that may be read."""

    segment: Segment
    file: CachedFile
    footer: Footer
    groups: list[Span]
    rows: tuple[Span, ...] | None
    spans: list[Span]
    bytes: int


class _ParsedFiles:
    """Parsed footers, text indexes and tables of streams. A footer counts with its stored size, though it is a few
    times larger once parsed; text indexes stay in their files and are mapped."""

    def __init__(self) -> None:
        self.footers: LruCache[Footer] = LruCache(64 << 20)
        self.text_indexes: LruCache[TextIndex] = LruCache(1 << 30)
        self.stream_tables: LruCache[pa.Table] = LruCache(64 << 20)


class SegmentCache:
    """Safe to use from many threads. `directory` is the given one, or one beside it if another process uses that."""

    def __init__(self, store: SegmentStore, directory: Path, max_bytes: int) -> None:
        if any(sign in str(directory) for sign in _GLOB_SIGNS):
            raise UserError(f"cache directory {directory}: the path must not contain any of {_GLOB_SIGNS}")
        self._own = OwnDirectory(directory.resolve())
        self.directory = self._own.path
        self._max_bytes = max_bytes
        self._files = Files(store, self.directory, max_bytes)
        self._parsed = _ParsedFiles()

    @property
    def size(self) -> int:
        """Return the bytes that are cached or being fetched; holes do not count."""
        return self._files.cost

    @property
    def held(self) -> int:
        """Return the number of files that queries hold now."""
        return self._files.held

    @contextmanager
    def hold(self, scan: Scan, segments: Iterable[Segment], *, checked: bool = False) -> Iterator[Lease]:
        """Hold the segments' files, with everything that the scan reads of them, until the context ends. Raises what
        the store raises; Corrupt for an object whose size differs from the one in the index; TooLarge if the files
        cannot fit. `checked`, for a reader that ignores page checksums: also raises Corrupt if a page that the scan
        reads was changed since it was written."""

        def build(own: list[Segment], held: list[CachedFile]) -> Lease:
            return _LeaseBuilder(scan, self._files, self._parsed, held, self._max_bytes).build(own, checked=checked)

        with self._holding(segments, build) as files:
            yield files

    @contextmanager
    def hold_beside(self, segments: Iterable[Segment], name: str) -> Iterator[Mapping[UUID, Path]]:
        """Hold the side files of this name, whole, until the context ends; return their paths by segment id. Raises as
        `hold` does, and Corrupt for a segment that has no such side file."""
        with self._holding(segments, lambda own, held: self._beside(own, name, held)) as files:
            yield files

    def stream_tables(self, segments: Iterable[Segment]) -> Mapping[UUID, pa.Table]:
        """Return the tables of streams beside these segments, by segment id; segments without a readable one are
        absent. Raises what the store raises."""
        found: dict[UUID, pa.Table] = {}
        missing: list[Segment] = []
        for segment in segments:
            if bytes_ := segment.statistics.get("side_bytes", {}).get(STREAM_TABLE):
                known = self._parsed.stream_tables.get(_object(segment, STREAM_TABLE, bytes_))
                if known is None:
                    missing.append(segment)
                else:
                    found[segment.id] = known
        try:
            return found | self._read_stream_tables(missing)
        except Corrupt:  # the loop below finds out which one it is
            for segment in missing:
                with _without_side(segment, "a table of streams cannot be used"):
                    found |= self._read_stream_tables([segment])
        return found

    def _read_stream_tables(self, segments: list[Segment]) -> dict[UUID, pa.Table]:
        found: dict[UUID, pa.Table] = {}
        with self.hold_beside(segments, STREAM_TABLE) as paths:
            for segment in segments:
                table = read_stream_table(paths[segment.id].read_bytes())
                key = _object(segment, STREAM_TABLE, segment.statistics["side_bytes"][STREAM_TABLE])
                self._parsed.stream_tables.put(key, table, table.nbytes)
                found[segment.id] = table
        return found

    def close(self) -> None:
        """Wait for running fetches. Whole files stay for the next start."""
        self._files.close()
        self._own.close()

    @contextmanager
    def _holding(
        self, segments: Iterable[Segment], hold: Callable[[list[Segment], list[CachedFile]], T]
    ) -> Iterator[T]:
        """Call `hold`, once more if someone removed files meanwhile. Corrupt names the segment."""
        own = list(segments)
        with ExitStack() as held:
            try:
                try:
                    files = hold(own, held.enter_context(self._files.holding()))
                except (Vanished, FileNotFoundError):
                    held.close()
                    files = hold(own, held.enter_context(self._files.holding()))
            except Corrupt as error:
                held.close()
                error.segment = error.segment or self._damaged(own, hold)
                raise
            yield files

    def _damaged(self, segments: list[Segment], hold: Callable[[list[Segment], list[CachedFile]], T]) -> UUID | None:
        """Return the id of the first segment that cannot be held alone; None if each of them can by now, or if another
        error hides which one it is."""
        for segment in segments:
            try:
                with self._files.holding() as held:
                    hold([segment], held)
            except Corrupt:
                return segment.id
            except (LakerunnerError, OSError):
                return None
        return None

    def _beside(self, segments: list[Segment], name: str, held: list[CachedFile]) -> Mapping[UUID, Path]:
        found: dict[UUID, CachedFile] = {}
        for segment in segments:
            bytes_ = segment.statistics.get("side_bytes", {}).get(name)
            if bytes_ is None:
                raise Corrupt(f"{segment.path} has no {name} beside it")
            found[segment.id] = self._files.hold(held, _object(segment, name, bytes_))
        self._files.want([(file, [(0, file.object.bytes)]) for file in found.values()])
        return {id_: file.path for id_, file in found.items()}


class _LeaseBuilder:
    """Takes the segments of one query through the steps."""

    def __init__(self, scan: Scan, files: Files, parsed: _ParsedFiles, held: list[CachedFile], max_bytes: int) -> None:
        self._scan = scan
        self._projections = Projections(scan)
        self._text_questions = TextQuestions(scan)
        self._max_bytes = max_bytes
        self._files = files
        self._footers, self._indexes = parsed.footers, parsed.text_indexes
        self._held = held
        self._fetched: dict[CachedFile, list[Span]] = {}
        self._needed: list[tuple[CachedFile, list[Span]]] = []
        self._pruned: Counter[str] = Counter()
        self._groups_pruned: Counter[str] = Counter()
        self._groups = 0

    def build(self, segments: list[Segment], *, checked: bool) -> Lease:
        texts = self._texts(segments)
        alive = [segment for segment in segments if segment.id not in texts or texts[segment.id].alive]
        self._pruned[TEXT_INDEX] += len(segments) - len(alive)
        looks = [
            _OpenedSegment(segment, file, footer, pruned_groups(self._scan, segment, footer, texts.get(segment.id)))
            for segment, file, footer in self._footers_of(alive)
        ]
        self._ask_blooms(looks, texts)
        needed = []
        for look in looks:
            wanted = choose_groups(look.footer.groups, look.reasons)
            self._count(look.footer, wanted)
            if wanted.groups:
                needed.append(self._chunks(look, wanted.groups))
        self._check_fits((one.file, one.bytes) for one in needed)
        self._needed += [(one.file, one.spans) for one in needed]
        self._want([(one.file, one.spans) for one in needed])
        for one in needed if checked else ():
            self._check(one)
        return Lease(
            {one.segment.id: self._leased(one) for one in needed},
            {one.segment.id: one.footer for one in needed},
            self._account(len(needed)),
        )

    def _leased(self, one: _SegmentNeeds) -> LeasedFile:
        groups = [group for first, end in one.groups for group in range(first, end)]
        absent = unmapped(self._scan.attributes, one.segment, one.footer, groups)
        empty = empty_columns(self._scan, one.segment, one.footer, groups)
        return LeasedFile(one.file.path, one.rows, absent, empty)

    # The text index

    def _texts(self, segments: list[Segment]) -> dict[UUID, TextFindings]:
        """Return what the text indexes say, for segments with a readable one. An unreadable index prunes nothing."""
        if not self._text_questions:
            return {}
        files: dict[UUID, CachedFile] = {}
        for segment in segments:
            with _without_side(segment, _NO_INDEX):
                if bytes_ := segment.statistics.get("side_bytes", {}).get(SIDE_FILE):
                    files[segment.id] = self._files.hold(self._held, _object(segment, SIDE_FILE, bytes_))
        with suppress(Corrupt):  # the loop below finds out which one it is
            self._needed += [(file, [(0, file.object.bytes)]) for file in files.values()]
            self._want(self._needed)
        found: dict[UUID, TextFindings] = {}
        for segment in segments:
            with _without_side(segment, _NO_INDEX):
                if file := files.get(segment.id):
                    if not file.whole:
                        self._files.want([(file, [(0, file.object.bytes)])])
                    found[segment.id] = self._text_questions.findings(self._index(file), segment)
        return found

    def _index(self, file: CachedFile) -> TextIndex:
        index = self._indexes.get(file.object)
        if index is None:
            with self._forgetting(file), file.path.open("rb") as opened:
                index = TextIndex(memoryview(mmap.mmap(opened.fileno(), 0, prot=mmap.PROT_READ)))
            self._indexes.put(file.object, index, max(file.object.bytes, _INDEX_LEAST))
        return index

    # Footers

    def _footers_of(self, segments: list[Segment]) -> list[tuple[Segment, CachedFile, Footer]]:
        objects = [_object(segment, "parquet", segment.bytes) for segment in segments]
        looked = [(s, self._files.hold(self._held, o)) for s, o in zip(segments, objects, strict=True)]
        new = [(segment, file) for segment, file in looked if not self._footers.get(file.object)]
        self._check_fits((file, _tail(segment)) for segment, file in new)
        self._want([(file, [(segment.bytes - _tail(segment), segment.bytes)]) for segment, file in new])
        longer = []
        for segment, file in new:
            with self._forgetting(file):
                longer.append((file, [(segment.bytes - footer_bytes(file.path, segment.path), segment.bytes)]))
        self._want(longer)
        return [(segment, file, self._footer(file)) for segment, file in looked]

    def _footer(self, file: CachedFile) -> Footer:
        footer = self._footers.get(file.object)
        if footer is None:
            with self._forgetting(file):
                footer = read_footer(file.path, file.object.key)
            self._footers.put(file.object, footer, footer.bytes)
        return footer

    @contextmanager
    def _forgetting(self, file: CachedFile) -> Iterator[None]:
        """Drop the file from the cache if it turns out to be damaged."""
        try:
            yield
        except Corrupt:
            self._files.forget(file)
            raise

    # Bloom filters

    def _ask_blooms(self, looks: list[_OpenedSegment], texts: Mapping[UUID, TextFindings]) -> None:
        """Prune the remaining row groups by bloom filters, where the scan asks for an id."""
        findings: dict[UUID, dict[Leaf, set[int]]] = {look.segment.id: {} for look in looks}
        for condition, (column, ids) in ids_of(self._scan).items():
            hashes = [bloom_hash(one) for one in ids]
            asked = []
            for look in looks:
                left = [group for group in range(look.footer.groups) if group not in look.reasons]
                blooms = {group: place for group in left if (place := look.footer.bloom(column, group))}
                if blooms:
                    asked.append((look, self._bloom_file(look), blooms))
            self._needed += [(file, list(blooms.values())) for _, file, blooms in asked]
            self._want([(file, list(blooms.values())) for _, file, blooms in asked])
            for look, file, blooms in asked:
                with file.path.open("rb", buffering=0) as opened:
                    read = partial(_read_at, opened.fileno())
                    lacking = {group for group, place in blooms.items() if not may_hold(read, place, hashes)}
                findings[look.segment.id][condition] = set(range(look.footer.groups)) - lacking
        for look in looks:
            if found := findings[look.segment.id]:
                look.reasons.update(
                    pruned_groups(self._scan, look.segment, look.footer, texts.get(look.segment.id), found)
                )

    def _bloom_file(self, look: _OpenedSegment) -> CachedFile:
        """Return the file to read bloom filters from. A file with holes may hold neutral filters in their place, which
        keep DuckDB from reading a hole (`fill`); the real ones are cached in a file of their own."""
        if look.file.whole:
            return look.file
        return self._files.hold(self._held, replace(look.file.object, name=f"{look.file.object.name}.blooms"))

    # Column chunks

    def _chunks(self, look: _OpenedSegment, groups: list[Span]) -> _SegmentNeeds:
        segment, file, footer = look.segment, look.file, look.footer
        rows = tuple(
            (footer.rows[first][0], NO_END if end == footer.groups else footer.rows[end - 1][1])
            for first, end in groups
        )
        everything = groups == [(0, footer.groups)]
        columns = self._projections.stored(segment)
        chunks = [footer.chunks(column) for column in columns]
        spans = [span for of in chunks for first, end in groups for group in of[first:end] for span in group]
        spans.append((segment.bytes - footer.bytes, segment.bytes))
        bytes_ = segment.bytes if segment.bytes <= _SMALL else size(joined(spans))
        if 2 * bytes_ > segment.bytes:
            spans = [(0, segment.bytes)]
        else:
            blooms = [bloom for column in columns for bloom in footer.blooms(column)]
            spans += self._files.fill(file, blooms, NEUTRAL)
        # DuckDB itself skips what statistics exclude, but not by alternatives. Where the file has no holes, ranges are
        # left out unless DuckDB would read more than twice as much: a file with ranges needs a SELECT of its own, which
        # costs as much as a row group.
        by_duckdb = not any(isinstance(one, AnyOf) for one in self._scan.conditions)
        further = sum(reason != STATISTICS or not by_duckdb for reason in look.reasons.values())
        without_ranges = file.whole and further <= footer.groups - len(look.reasons)
        if everything or without_ranges:
            return _SegmentNeeds(segment, file, footer, [(0, footer.groups)], None, spans, bytes_)
        return _SegmentNeeds(segment, file, footer, groups, rows, spans, bytes_)

    def _check(self, one: _SegmentNeeds) -> None:
        """Check the pages. What was cached before may have been damaged on this disk: then fetch it again, once."""
        try:
            self._check_pages(one)
        except Corrupt:
            if not without(one.spans, self._fetched.get(one.file, ())):
                raise
            self._want([(one.file, one.spans)])
            self._check_pages(one)

    def _check_pages(self, one: _SegmentNeeds) -> None:
        with self._forgetting(one.file):
            check_chunks(one.file, one.footer, self._projections.stored(one.segment), one.groups)

    def _check_fits(self, needed: Iterable[tuple[CachedFile, int]]) -> None:
        need = sum(bytes_ for file, bytes_ in needed if not file.linked)
        if need > self._max_bytes:
            raise TooLarge(
                f"the query reads {need} bytes of segments, more than cache_max_bytes {self._max_bytes}: "
                "narrow its time range"
            )

    def _want(self, wanted: list[tuple[CachedFile, list[Span]]]) -> None:
        for file, spans in self._files.want(wanted):
            self._fetched[file] = joined([*self._fetched.get(file, ()), *spans])

    # What it took

    def _count(self, footer: Footer, wanted: RowGroupChoice) -> None:
        self._groups += footer.groups
        self._groups_pruned.update(wanted.pruned)
        if not wanted.groups:
            self._pruned[next(reason for reason in _PRUNING_ORDER if reason in wanted.pruned)] += 1

    def _account(self, read: int) -> Account:
        return Account(
            pruned=dict(+self._pruned),
            read=read,
            row_groups=self._groups,
            row_groups_pruned=dict(+self._groups_pruned),
            bytes_fetched=sum(map(size, self._fetched.values())),
            bytes_cached=sum(size(without(spans, self._fetched.get(file, ()))) for file, spans in self._needed),
        )


def _object(segment: Segment, kind: str, bytes_: int) -> StoredObject:
    return StoredObject(f"{segment.organization}_{segment.id}.{kind}", segment.side_path(kind), bytes_)


def _read_at(descriptor: int, start: int, length: int) -> bytes:
    return os.pread(descriptor, length, start)


def _tail(segment: Segment) -> int:
    """Return how many bytes of the segment's end to read for its footer: all of a small segment, else the estimated
    size."""
    if segment.bytes <= _SMALL:
        return segment.bytes
    groups = 1 + segment.rows // signal_named(segment.signal).row_group_rows
    return min(segment.bytes, max(_TAIL_LEAST, groups * len(segment.columns) * _CHUNK_IN_FOOTER))


@contextmanager
def _without_side(segment: Segment, text: str) -> Iterator[None]:
    """Log a missing or damaged side file and go on: it costs time, not rows."""
    try:
        yield
    except Corrupt as error:
        fields = {"segment": segment.path, "reason": str(error)}
        _logger.warning(text, extra={"lakerunner_fields": fields})
