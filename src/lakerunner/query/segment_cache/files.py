"""Objects of the store as files of one local directory, whole or in part, within a bound.

Input: an object's key and size, and the spans of it that are needed. Output: a file of that size that holds these
spans. Invariants: a span counts as present only once its bytes are written, and is never written again; what was not
fetched is a hole. A held file is never removed. `max_bytes` counts bytes that are present or being fetched, not file
sizes; beyond it, the files that were held longest ago are removed first. If more is held than fits, the bound is
exceeded until it is released. Threads that need the same bytes wait for one fetch.

An object that is a local file already is linked, not copied, while it is held. After a restart, files with a mark
(which says that they are whole) are used again; others are deleted. If someone else removes or replaces a file, this is
noticed when it is held next, and it is fetched again.
"""

from __future__ import annotations

import fcntl
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
from lakerunner.query.segment_cache.lease import Vanished
from lakerunner.query.segment_cache.spans import Span, joined, overlaps, size, without

_FETCHES_AT_ONCE = 16
_REQUEST_BYTES = 8 << 20  # the most that one request fetches, and holds in memory
GAP_BYTES = 128 << 10  # gaps up to this size are fetched too, which is faster than a second request
_MARKS = "whole"  # the directory of the marks: one small file for each file that is whole
_MAX_DIRECTORIES = 64


@dataclass(frozen=True)
class StoredObject:
    """`name` is the object's file name here, which no other object has."""

    name: str
    key: str
    bytes: int


@dataclass(eq=False)
class CachedFile:
    """The lock of `Files` guards all fields but `object`, `path`, `inode` and `sound`. `cost` is what the file counts
    against the bound: nothing for a link, which is always whole. `spoiled`: it must not be held again. `lost`: someone
    else removed it, and another file may have its name. `sound`: the row groups whose pages were checked (pages.py), by
    column and, for a link, by the time its file was written."""

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
    """Safe to use from many threads. The directory belongs to this process and holds nothing else."""

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
        """Return the bytes that are present or being fetched."""
        with self._lock:
            return self._cost

    @property
    def held(self) -> int:
        """Return the number of held files."""
        with self._lock:
            return sum(file.holders > 0 for file in self._files.values())

    @contextmanager
    def holding(self) -> Iterator[list[CachedFile]]:
        """Give a list for `hold`; the files in it are released when the context ends."""
        files: list[CachedFile] = []
        try:
            yield files
        finally:
            with self._lock:
                for file in files:
                    self._release(file)
                self._evict()

    def hold(self, held: list[CachedFile], object_: StoredObject) -> CachedFile:
        """Return the object's file, perhaps still empty, and hold it. Raises Absent or Corrupt if the object is a local
        file that is missing or has another size."""
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
                with _translating_errors():
                    (self._directory / _MARKS).mkdir(parents=True, exist_ok=True)
                file = self._files[object_.name] = self._linked(object_) or self._empty(object_)
            self._files.move_to_end(object_.name)
            file.holders += 1
            held.append(file)
            return file

    def want(self, wanted: Iterable[tuple[CachedFile, Sequence[Span]]]) -> list[tuple[CachedFile, list[Span]]]:
        """Wait until these spans of held files are present. Return what was fetched for it, which includes small gaps
        between spans. Raises what the store raises."""
        fetches: list[Future[None]] = []
        fetched: list[tuple[CachedFile, list[Span]]] = []
        with self._lock:
            for file, spans in wanted:
                if file.whole:
                    continue
                needed = joined(spans)
                fetches += [fetch for span, fetch in file.coming.items() if overlaps(span, needed)]
                requests = _requests(without(needed, file.taken), file.taken)
                for span in requests:
                    file.coming[span] = self._pool.submit(self._fetch, file, span)
                    fetches.append(file.coming[span])
                self._weigh(file)
                fetched.append((file, requests))
            self._evict()
        wait(fetches)
        for fetch in fetches:
            fetch.result()
        return fetched

    def fill(self, file: CachedFile, spans: Iterable[Span], data: bytes) -> list[Span]:
        """Write these bytes, which are not the object's, to the start of each span. Return the spans that cannot be
        filled because some of their bytes are present or being fetched."""
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
        """Drop the file's bytes, which are damaged: the next reader fetches them again. A link is given up once nobody
        holds it, since nothing must ever be fetched into the store's own file."""
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
        """Wait for running fetches."""
        self._pool.shutdown()

    # With the lock held

    def _lose(self, file: CachedFile) -> None:
        """Free the name for another file. Those who hold this one read what they have opened or linked."""
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
        """Link to the object. Return None if it is not a local file or cannot be linked."""
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
        # Never write into an existing file: it could be a link to the store's own object.
        with _translating_errors():
            path.unlink(missing_ok=True)
            with path.open("xb") as file:
                file.truncate(object_.bytes)
                return CachedFile(object_, path, os.fstat(file.fileno()).st_ino)

    def _release(self, file: CachedFile) -> None:
        file.holders -= 1
        if file.lost:
            return
        if self._is_useless(file):
            self._remove(file)
        elif file.whole and not file.linked and not file.marked:
            file.marked = True
            self._pool.submit(self._mark, file)

    def _is_useless(self, file: CachedFile) -> bool:
        return not file.lost and not file.holders and not file.coming and (file.spoiled or not file.here)

    def _evict(self) -> None:
        if self._cost <= self._max_bytes:
            return
        for file in [file for file in self._files.values() if not file.holders and not file.coming]:
            self._remove(file)
            if self._cost <= self._max_bytes:
                break

    def _remove(self, file: CachedFile) -> None:
        """Remove the mark first: a file without one is not taken for whole."""
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

    def _fetch(self, file: CachedFile, span: Span) -> None:
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
                if self._is_useless(file):
                    self._remove(file)

    def _write(self, file: CachedFile, at: int, data: bytes | memoryview) -> None:
        with _translating_errors(), file.path.open("r+b", buffering=0) as opened:
            if os.fstat(opened.fileno()).st_ino != file.inode:
                raise FileNotFoundError(file.path)
            view = memoryview(data)
            while view:
                done = os.pwrite(opened.fileno(), view, at)
                view, at = view[done:], at + done

    def _mark(self, file: CachedFile) -> None:
        """Sync the file, then write its mark if it is still the file of this name."""
        with suppress(OSError):  # without a mark the file is fetched again after a restart
            with file.path.open("rb") as opened:
                os.fsync(opened.fileno())
            with self._lock:
                if self._files.get(file.object.name) is file and file.whole:
                    _mark_of(file.path).write_text(file.object.key)


def _requests(missing: Sequence[Span], taken: Sequence[Span]) -> list[Span]:
    """Return the requests to send: spans with small gaps are joined unless a present span lies between; long ones are
    split."""
    merged: list[Span] = []
    for start, end in missing:
        if merged and start - merged[-1][1] <= GAP_BYTES and not overlaps((merged[-1][1], start), taken):
            merged[-1] = merged[-1][0], end
        else:
            merged.append((start, end))
    return [(at, min(at + _REQUEST_BYTES, end)) for start, end in merged for at in range(start, end, _REQUEST_BYTES)]


def _inode(path: Path) -> int | None:
    """Return the inode, or None if the file does not exist."""
    try:
        return os.stat(path, follow_symlinks=False).st_ino
    except OSError:
        return None


def _mark_of(path: Path) -> Path:
    return path.parent / _MARKS / path.name


@contextmanager
def _translating_errors() -> Iterator[None]:
    try:
        yield
    except FileNotFoundError as error:
        raise Vanished("a file of the segment cache was removed while in use") from error
    except OSError as error:
        raise Unavailable(f"cannot write the segment cache: {error.strerror}") from error


class OwnDirectory:
    """A directory that no other process uses: `path`, until `close` or the end of the process.

    Several workers of one machine may be configured with the same directory: the first one takes it, the others take
    `segments-2`, `segments-3`, and so on. A lock file says which are taken and is released with its process, so that a
    restarted worker takes the first free one, with the files its last owner left there."""

    def __init__(self, directory: Path) -> None:
        directory.parent.mkdir(parents=True, exist_ok=True)
        for number in range(1, _MAX_DIRECTORIES + 1):
            path = directory if number == 1 else directory.with_name(f"{directory.name}-{number}")
            # Beside the directory: closing any descriptor of this file would drop the lock.
            self._lock = os.open(path.with_name(f"{path.name}.lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
            try:
                fcntl.lockf(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                os.close(self._lock)
                continue
            path.mkdir(exist_ok=True)
            self.path = path
            return
        raise Unavailable(
            f"{_MAX_DIRECTORIES} processes already use {directory} and the directories beside it: "
            "choose another directory"
        )

    def close(self) -> None:
        """Release the lock. Closing twice is fine."""
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1
