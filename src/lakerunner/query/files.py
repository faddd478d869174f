"""Objects of the store as files of one directory, whole or in part, within a bound.

Comes in: an object's key and size, and the spans of it that are wanted. Goes out: a file of that size, of which these
spans are there. What always holds: a span counts as there only once its bytes are written, and is never written again;
what was not fetched is a hole. A file that someone holds is not removed. Beyond `max_bytes`, which counts bytes that
are there or on their way and not the sizes of files, the files that were held longest ago go first; while more is held
than fits, it is more for as long. Those who want the same bytes wait for one fetch.

An object that is a file of this machine already is not copied but linked for as long as it is held. After a restart
the files that were whole are there, each of which has a mark that says so; others are forgotten. A file that someone
else removed, or put another in its place, is noticed when it is held next, and fetched again.
"""

from __future__ import annotations

import os
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from threading import Lock

from lakerunner.model.errors import Corrupt, Unavailable
from lakerunner.objects.store import SegmentStore
from lakerunner.query.held import Vanished
from lakerunner.query.spans import Span, joined, overlaps, size, without

_FETCHES_AT_ONCE = 16
_PIECE = 8 << 20  # the most that one fetch holds in memory
GAP_BYTES = 128 << 10  # so much between two spans is fetched with them, sooner than in two requests
_MARKS = "whole"  # the directory of the marks


@dataclass(frozen=True)
class StoredObject:
    """`name` is that of its file here: no other object's."""

    name: str
    key: str
    bytes: int


@dataclass(eq=False)
class CachedFile:
    """All but `object`, `path`, `inode` and `sound` is guarded by the lock of `Files`. `cost` is what it counts against
    the bound: a link, which is always whole, costs nothing. `spoiled`: it is not to be held again. `lost`: someone else
    removed it, and another may have its name. `sound`: by column, and when a link's file was written, the row groups
    that were checked (query/sound.py)."""

    object: StoredObject
    path: Path
    inode: int
    here: list[Span] = field(default_factory=list)
    coming: dict[Span, Future[None]] = field(default_factory=dict)
    filled: set[Span] = field(default_factory=set)
    holders: int = 0
    linked: bool = False
    marked: bool = False
    spoiled: bool = False
    lost: bool = False
    cost: int = 0
    sound: dict[tuple[str, int], list[Span]] = field(default_factory=dict)

    @property
    def whole(self) -> bool:
        return self.here == [(0, self.object.bytes)]

    @property
    def taken(self) -> list[Span]:
        return joined([*self.here, *self.coming])


class Files:
    """Safe to use from many threads. The directory is its own: one process, nothing else in it."""

    def __init__(self, store: SegmentStore, directory: Path, max_bytes: int) -> None:
        self._store = store
        self._directory = directory
        self._max_bytes = max_bytes
        self._lock = Lock()
        self._files: OrderedDict[str, CachedFile] = OrderedDict()  # the least recently held first
        self._cost = 0
        self._pool = ThreadPoolExecutor(_FETCHES_AT_ONCE, thread_name_prefix="segment-fetch")
        self._adopt()

    @property
    def cost(self) -> int:
        """Bytes that are here or on their way."""
        with self._lock:
            return self._cost

    @property
    def held(self) -> int:
        """How many files someone holds."""
        with self._lock:
            return sum(file.holders > 0 for file in self._files.values())

    @contextmanager
    def holding(self) -> Iterator[list[CachedFile]]:
        """What `hold` puts into this list stays while the context lasts."""
        files: list[CachedFile] = []
        try:
            yield files
        finally:
            with self._lock:
                for file in files:
                    self._release(file)
                self._evict()

    def hold(self, held: list[CachedFile], object_: StoredObject) -> CachedFile:
        """The object's file, perhaps without any bytes yet. Absent or Corrupt if it is a file of this machine that is
        not there or of another size."""
        with self._lock:
            file = self._files.get(object_.name)
            if file and _inode(file.path) != file.inode:
                self._lose(file)
                file = None
            if file and file.object != object_:
                if file.holders or file.coming:
                    raise Corrupt(f"{object_.key}: conflicting sizes, {file.object.bytes} and {object_.bytes} bytes")
                self._remove(file)
                file = None
            if file is None:
                with _explained():
                    (self._directory / _MARKS).mkdir(parents=True, exist_ok=True)
                file = self._files[object_.name] = self._linked(object_) or self._empty(object_)
            self._files.move_to_end(object_.name)
            file.holders += 1
            held.append(file)
            return file

    def want(self, wanted: Iterable[tuple[CachedFile, Sequence[Span]]]) -> list[tuple[CachedFile, list[Span]]]:
        """Returns when these spans of held files are there, with what was fetched for it: perhaps less, perhaps what
        stands between two of them too. Raises what the store raises."""
        fetches: list[Future[None]] = []
        fetched: list[tuple[CachedFile, list[Span]]] = []
        with self._lock:
            for file, spans in wanted:
                if file.whole:
                    continue
                asked = joined(spans)
                fetches += [fetch for span, fetch in file.coming.items() if overlaps(span, asked)]
                requests = _requests(without(asked, file.taken), file.taken)
                for piece in requests:
                    file.coming[piece] = self._pool.submit(self._bring, file, piece)
                    fetches.append(file.coming[piece])
                self._weigh(file)
                fetched.append((file, requests))
            self._evict()
        wait(fetches)
        for fetch in fetches:
            fetch.result()
        return fetched

    def fill(self, file: CachedFile, spans: Iterable[Span], data: bytes) -> list[Span]:
        """These bytes, which are not the object's, stand at the start of each span from now on. Returns the spans that
        cannot be filled, because something of them is there or on its way."""
        real = []
        with self._lock:
            for span in spans:
                if span in file.filled:
                    continue
                if overlaps(span, file.taken):
                    real.append(span)
                    continue
                self._write(file, span[0], data)
                file.filled.add(span)
                file.here = joined([*file.here, (span[0], span[0] + len(data))])
            self._weigh(file)
        return real

    def forget(self, file: CachedFile) -> None:
        """What is here of it is damaged: whoever wants it next fetches it anew. A link is given up when nobody holds it
        any more: what is wanted of it is never fetched into the store's own file."""
        with self._lock:
            file.sound = {}
            if file.linked:
                file.spoiled = True
                return
            _mark_of(file.path).unlink(missing_ok=True)
            file.here, file.marked = [], False
            file.filled.clear()
            self._weigh(file)

    def close(self) -> None:
        """Waits for what is on its way."""
        self._pool.shutdown()

    # With the lock held

    def _lose(self, file: CachedFile) -> None:
        """Give its name to another. Those who hold it read what they have opened or linked."""
        self._cost -= file.cost
        file.cost, file.lost = 0, True
        _mark_of(file.path).unlink(missing_ok=True)
        del self._files[file.object.name]

    def _weigh(self, file: CachedFile) -> None:
        if file.lost:
            return
        cost = size(file.here) + size(file.coming)
        self._cost += cost - file.cost
        file.cost = cost

    def _linked(self, object_: StoredObject) -> CachedFile | None:
        """None where the object is no file of this machine, or one that cannot be linked to."""
        local = self._store.local_path(object_.key)
        path = self._directory / object_.name
        try:
            if local is None:
                return None
            os.link(local, path, follow_symlinks=False)
            found = path.stat()
        except OSError:
            return None
        if found.st_size != object_.bytes:
            path.unlink()
            raise Corrupt(f"{object_.key} has {found.st_size} bytes, the index states {object_.bytes}")
        file = CachedFile(object_, path, found.st_ino, [(0, object_.bytes)], linked=True)
        self._weigh(file)
        return file

    def _empty(self, object_: StoredObject) -> CachedFile:
        path = self._directory / object_.name
        # Never into a file that is there: it could be a link to the store's own.
        with _explained():
            path.unlink(missing_ok=True)
            with path.open("xb") as file:
                file.truncate(object_.bytes)
                return CachedFile(object_, path, os.fstat(file.fileno()).st_ino)

    def _release(self, file: CachedFile) -> None:
        file.holders -= 1
        if file.lost:
            return
        if self._useless(file):
            self._remove(file)
        elif file.whole and not file.linked and not file.marked:
            file.marked = True
            self._pool.submit(self._mark, file)

    def _useless(self, file: CachedFile) -> bool:
        return not file.lost and not file.holders and not file.coming and (file.spoiled or not file.here)

    def _evict(self) -> None:
        if self._cost <= self._max_bytes:
            return
        for file in [file for file in self._files.values() if not file.holders and not file.coming]:
            self._remove(file)
            if self._cost <= self._max_bytes:
                break

    def _remove(self, file: CachedFile) -> None:
        """The mark first: a file without one is not taken for whole."""
        _mark_of(file.path).unlink(missing_ok=True)
        file.path.unlink(missing_ok=True)
        self._cost -= file.cost
        del self._files[file.object.name]

    def _adopt(self) -> None:
        (self._directory / _MARKS).mkdir(parents=True, exist_ok=True)
        files = [(path.stat(), path) for path in self._directory.iterdir() if path.is_file()]
        for status, path in sorted(files, key=lambda file: file[0].st_mtime_ns):
            if not _mark_of(path).exists():
                path.unlink()
                continue
            object_ = StoredObject(path.name, _mark_of(path).read_text(), status.st_size)
            file = CachedFile(object_, path, status.st_ino, [(0, object_.bytes)], marked=True)
            self._files[path.name] = file
            self._weigh(file)
        for mark in (self._directory / _MARKS).iterdir():
            if mark.name not in self._files:
                mark.unlink()
        self._evict()

    # In the pool

    def _bring(self, file: CachedFile, span: Span) -> None:
        arrived = False
        try:
            self._write(file, span[0], self._store.get_range(file.object.key, span[0], span[1] - span[0]))
            arrived = True
        finally:
            with self._lock:
                del file.coming[span]
                if arrived:
                    file.here = joined([*file.here, span])
                self._weigh(file)
                if self._useless(file):
                    self._remove(file)

    def _write(self, file: CachedFile, at: int, data: bytes | memoryview) -> None:
        with _explained(), file.path.open("r+b", buffering=0) as opened:
            if os.fstat(opened.fileno()).st_ino != file.inode:
                raise FileNotFoundError(file.path)
            view = memoryview(data)
            while view:
                done = os.pwrite(opened.fileno(), view, at)
                view, at = view[done:], at + done

    def _mark(self, file: CachedFile) -> None:
        """The file first, and only while it is the one of this name."""
        with suppress(OSError):  # without a mark it is fetched again after a restart
            with file.path.open("rb") as opened:
                os.fsync(opened.fileno())
            with self._lock:
                if self._files.get(file.object.name) is file and file.whole:
                    _mark_of(file.path).write_text(file.object.key)


def _requests(missing: Sequence[Span], taken: Sequence[Span]) -> list[Span]:
    """What to ask the store for: neighbours together, unless something that is there stands between; in pieces."""
    merged: list[Span] = []
    for start, end in missing:
        if merged and start - merged[-1][1] <= GAP_BYTES and not overlaps((merged[-1][1], start), taken):
            merged[-1] = merged[-1][0], end
        else:
            merged.append((start, end))
    return [(at, min(at + _PIECE, end)) for start, end in merged for at in range(start, end, _PIECE)]


def _inode(path: Path) -> int | None:
    """None if there is no such file."""
    try:
        return os.stat(path, follow_symlinks=False).st_ino
    except OSError:
        return None


def _mark_of(path: Path) -> Path:
    return path.parent / _MARKS / path.name


@contextmanager
def _explained() -> Iterator[None]:
    try:
        yield
    except FileNotFoundError as error:
        raise Vanished("a file of the segment cache was removed while in use") from error
    except OSError as error:
        raise Unavailable(f"cannot write the segment cache: {error.strerror}") from error
