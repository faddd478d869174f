"""Ingest: one Spark job turns a box of raw objects into segments.

Comes in: a box (paths only), the store's address, limits. Goes out: the index rows of the segments that were written,
and the outcome of every object: done, or set aside with a reason. Nothing is committed here.

What always holds: an object that cannot be read never stops its neighbours. A task holds no more than task_max_bytes of
unpacked input, one more object, and what is being read ahead, however large the box is. The same box cut into the same
number of tasks gives the same segments, ids and bytes, and with the same rules the same parts. If the store is away,
this is Unavailable, and the same box may simply be tried again; if a worker died, it is Crashed.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, fields, replace
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Any

from lakerunner.bus.topics import IngestBox
from lakerunner.model.display import plural
from lakerunner.model.errors import Absent, Corrupt, TooLarge, UserError, WrongContent
from lakerunner.model.failpoint import arm, reach
from lakerunner.model.segment import Segment
from lakerunner.model.signal import signal_named
from lakerunner.model.source import Findings, Note, Rejects, SourceObject, signal_word
from lakerunner.objects.open import StoreAddress, shared_store
from lakerunner.objects.store import ObjectStore
from lakerunner.pipeline.job import run_tasks
from lakerunner.pipeline.make_segments import MakeResult, Raw, detect_signal, make_segments
from lakerunner.pipeline.part_segments import NO_RULES, RuleBook, RuleStop
from lakerunner.pipeline.rule_parts import RuleCount
from lakerunner.pipeline.transcode.columns import NO_MAPPINGS, Mappings
from lakerunner.pipeline.transcode.formats import TRANSCODERS
from lakerunner.pipeline.unpack import unpack

if TYPE_CHECKING:  # workers import this module too, and need no sessions
    from pyspark.sql import SparkSession

JOB_GROUP = "ingest"
_TASK_MIN_BYTES = 1 << 20  # of packed input: below it, starting a task costs more than it saves
_AHEAD_OBJECTS = 8  # hides the store's latency while the task computes on one core
_AHEAD_BYTES = 32 << 20


@dataclass(frozen=True)
class IngestLimits:
    """`object_max_bytes`: a larger object, packed or unpacked, is set aside. `task_max_bytes`: the most unpacked input
    for one set of segments, unless a single object is larger. `failpoint` arms the workers. `bad_lines_max_share`: an
    object with a larger share of unreadable lines is set aside."""

    object_max_bytes: int
    task_max_bytes: int
    failpoint: str = ""
    bad_lines_max_share: float = 0.5


@dataclass(frozen=True)
class BoxResult:
    """Every object of the box is in `done`, `failed` or `rerouted`, once. `findings` are on those that are done.
    `rerouted` pairs objects whose content is of another signal than their file name tells with that signal. `parts` are
    segments of what rules make of the others, `stops` the rule versions that have none of one of them, and why;
    `rule_counts` what versions did."""

    segments: tuple[Segment, ...]
    done: tuple[SourceObject, ...]
    failed: tuple[tuple[SourceObject, str], ...]
    findings: tuple[tuple[SourceObject, Findings], ...] = ()
    rerouted: tuple[tuple[SourceObject, str], ...] = ()
    parts: tuple[Segment, ...] = ()
    stops: tuple[RuleStop, ...] = ()
    rule_counts: tuple[tuple[int, RuleCount], ...] = ()


def ingest_box(
    spark: SparkSession,
    box: IngestBox,
    address: StoreAddress,
    limits: IngestLimits,
    mappings: Mappings = NO_MAPPINGS,
    book: RuleBook = NO_RULES,
) -> BoxResult:
    """Write the box's segments, and the parts that rules make of them, in one Spark job. Unavailable if the store is
    away, Crashed if a worker died; if interrupted, it cancels its job."""
    groups = split(box, spark.sparkContext.defaultParallelism)
    task = partial(ingest_group, address=address, limits=limits, mappings=mappings, book=book)
    return _join_results(run_tasks(spark, JOB_GROUP, groups, task))


def ingest_group(
    box: IngestBox,
    address: StoreAddress,
    limits: IngestLimits,
    mappings: Mappings = NO_MAPPINGS,
    book: RuleBook = NO_RULES,
) -> BoxResult:
    """Run one task; also a whole box without Spark."""
    arm(limits.failpoint)
    store = shared_store(address)
    spec = signal_named(box.signal)
    failed: list[Failure] = []
    results = []
    unpacked = partial(_decode_object, signal=box.signal, limits=limits, mappings=mappings)
    for raws in _batches(_read_ahead(store, box.sources, limits), unpacked, limits, failed):
        results.append(_empty_objects([raw.source for raw in raws if not raw.data]))
        raws[:] = [raw for raw in raws if raw.data]
        made = make_segments(spec, box.organization, box.collector, raws, partial(_put, store), book)
        of_rules = made.parts, made.stops, made.rule_counts
        results.append(BoxResult(made.segments, made.done, (), tuple(_findings(made, raws)), (), *of_rules))
        failed += _failures(made.failed, raws, box.signal)
        raws.clear()  # free them before the next batch
    return _join_results([*results, _settle_failures(failed, box.signal)])


def read_object(
    store: ObjectStore, source: SourceObject, signal: str, limits: IngestLimits, mappings: Mappings = NO_MAPPINGS
) -> Raw:
    """Return the content of one object as a box has it. Absent if it is gone, Corrupt or UserError if it cannot be read
    or has changed."""
    return _decode_object(source, _fetch(store, source, limits), signal, limits, mappings)


Failure = tuple[SourceObject, Exception]


def _empty_objects(sources: Sequence[SourceObject]) -> BoxResult:
    """Return the result of objects without content: they are done, and have no rows."""
    return BoxResult((), tuple(sources), (), tuple((source, Findings(rows=0)) for source in sources))


def _findings(made: MakeResult, raws: Sequence[Raw]) -> Iterator[tuple[SourceObject, Findings]]:
    """Yield the findings on each done object: from its transcoder, which names lines, then from its rows."""
    of_raws = {raw.source: raw.findings for raw in raws}
    notes: dict[SourceObject, list[Note]] = {}
    for source, note in made.notes:
        notes.setdefault(source, []).append(note)
    for source, rows in zip(made.done, made.counts, strict=True):
        yield source, replace(of_raws[source], rows=rows).with_notes(notes.get(source, ()))


def _failures(failed: Iterable[tuple[SourceObject, str]], raws: Sequence[Raw], signal: str) -> Iterator[Failure]:
    """Yield objects that a reader refused, with the signal that their bytes show, if any."""
    of_source = {raw.source: raw for raw in raws}
    for source, reason in failed:
        yield source, WrongContent(reason, detect_signal(of_source[source], signal))


def _settle_failures(failed: Iterable[Failure], signal: str) -> BoxResult:
    """Return the objects that are set aside, and those that go to their own signal. Only a signal that comes from the
    file name is doubted: one that a folder states is meant. So an object is never rerouted twice, since afterwards its
    name tells another signal."""
    aside, rerouted = [], []
    for source, error in failed:
        guess, word = signal_word(source.key.rpartition("/")[2])
        doubted = isinstance(error, WrongContent) and guess == signal
        if isinstance(error, WrongContent) and doubted and error.signal:
            rerouted.append((source, error.signal))
            continue
        why = f" (read as {signal} because its name contains {word!r})" if doubted and word else ""
        aside.append((source, f"{error}{why}"))
    return BoxResult((), (), tuple(aside), rerouted=tuple(rerouted))


def _put(store: ObjectStore, path: str, data: memoryview) -> None:
    reach("before-put", path)
    store.put(path, data)
    reach("after-put", path)


def split(box: IngestBox, slots: int) -> list[IngestBox]:
    """Cut the box into smaller ones of about equal size, one per task: as many as there are slots, and fewer if there
    is little to do. An object that is in the box twice is taken once."""
    sources = sorted({source.identity: source for source in box.sources}.values())
    total = sum(source.size for source in sources)
    tasks = max(1, min(slots, len(sources), total // _TASK_MIN_BYTES))
    groups: list[list[SourceObject]] = [[] for _ in range(tasks)]
    loads = [0] * tasks
    for source in sorted(sources, key=lambda source: -source.size):  # the largest first, to the least loaded
        lightest = loads.index(min(loads))
        groups[lightest].append(source)
        loads[lightest] += source.size
    return [replace(box, sources=tuple(sorted(group))) for group in groups if group]


def _batches(
    readings: Iterable[tuple[SourceObject, Future[memoryview]]],
    unpacked: Callable[[SourceObject, memoryview], Raw],
    limits: IngestLimits,
    failed: list[Failure],
) -> Iterator[list[Raw]]:
    """Yield unpacked objects, as many at a time as may be held; those that cannot be read go to `failed`."""
    batch: list[Raw] = []
    held = 0
    for source, reading in readings:
        try:
            raw = unpacked(source, reading.result())
        except (Corrupt, UserError) as error:
            failed.append((source, error))
            continue
        del reading  # frees the packed object
        if batch and held + len(raw.data) > limits.task_max_bytes:
            yield batch
            batch, held = [], 0
        batch.append(raw)
        held += len(raw.data)
        del raw
        if held >= limits.task_max_bytes:  # before another one, perhaps as large, is read
            yield batch
            batch, held = [], 0
    if batch:
        yield batch


def _decode_object(
    source: SourceObject, data: memoryview, signal: str, limits: IngestLimits, mappings: Mappings
) -> Raw:
    """Return the object's content, as OTLP if its format is transcoded."""
    found, content = unpack(source.key, data, limits.object_max_bytes)
    transcoder = TRANSCODERS.get(found)
    if transcoder is None or not content:
        return Raw(source, content, found)
    try:
        made = transcoder(signal, content, mappings.columns_of(source.key, signal).near(source.modified_ns))
        _refuse_mostly_bad(made.findings.rejects, limits.bad_lines_max_share)
    except Corrupt as error:
        raise error if isinstance(error, WrongContent) else WrongContent(str(error)) from None
    return Raw(source, memoryview(made.data), findings=made.findings)


def _refuse_mostly_bad(rejects: Rejects, max_share: float) -> None:
    """Raise Corrupt if too many lines cannot be read: the format is then probably not what the key's ending tells."""
    if rejects.count > max_share * rejects.lines:
        first = rejects.first[0]
        raise Corrupt(
            f"{rejects.count} of {plural(rejects.lines, 'line')} cannot be read, first line {first.line}: "
            f"{first.reason}. A file is ingested if at most {max_share:.0%} of its lines are bad (bad_lines_max_share)"
        )


def _read_ahead(
    store: ObjectStore, sources: Sequence[SourceObject], limits: IngestLimits
) -> Iterator[tuple[SourceObject, Future[memoryview]]]:
    """Yield the objects in their order, reading the next few while one is processed."""
    waiting: deque[tuple[SourceObject, Future[memoryview]]] = deque()
    with ThreadPoolExecutor(_AHEAD_OBJECTS) as pool:
        for source in sources:
            while waiting and not _fits(source, waiting):
                yield waiting.popleft()
            waiting.append((source, pool.submit(_fetch, store, source, limits)))
        while waiting:
            yield waiting.popleft()


def _fits(source: SourceObject, waiting: Sequence[tuple[SourceObject, Any]]) -> bool:
    size = source.size + sum(other.size for other, _ in waiting)
    return len(waiting) < _AHEAD_OBJECTS and size <= _AHEAD_BYTES


def _fetch(store: ObjectStore, source: SourceObject, limits: IngestLimits) -> memoryview:
    """Return the object as it was announced. If it has been overwritten, the new one is announced under its own etag:
    taking it here would ingest it twice."""
    if source.size > limits.object_max_bytes:
        raise Corrupt(f"the file has {source.size} bytes: raise object_max_bytes to ingest it")
    reach("before-read", source.key)
    changed = Corrupt("the object has changed since it was announced")
    try:
        meta, data = store.fetch(source.key, max_bytes=source.size)
    except TooLarge:
        raise changed from None
    except Absent as error:
        raise Absent(f"{error}: it was deleted after it was announced") from None
    if len(data) != source.size or meta.etag != source.etag:
        raise changed
    return data


def _join_results(results: Sequence[BoxResult]) -> BoxResult:
    return BoxResult(*(tuple(chain(*(getattr(one, part.name) for one in results))) for part in fields(BoxResult)))
