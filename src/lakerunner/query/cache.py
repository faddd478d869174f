"""Segments as files on the worker's own disk, fetched whole and once.

What always holds: a file under its final name is a whole segment, of the size the index states. A file that a query
holds is not removed. Beyond `max_bytes` the files that were held longest ago go first; while queries hold more than
fits, the cache is larger for as long as they do. One query that alone needs more is refused. A restart keeps what is
there.
"""

from __future__ import annotations

import os
from collections import Counter, OrderedDict
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from pathlib import Path
from secrets import token_hex
from threading import Lock

from lakerunner.model.errors import Corrupt, TooLarge, Unavailable, UserError
from lakerunner.model.segment import Segment
from lakerunner.objects.store import ObjectStore
from lakerunner.plan.scan import Scan
from lakerunner.query.account import Account
from lakerunner.query.held import Held, HeldFile

_FETCHES_AT_ONCE = 8
_HALF_FETCHED = ".part"
_GLOB_SIGNS = "*?["


class SegmentCache:
    """Safe to use from many threads. The directory is this cache's own: one process, nothing else in it."""

    def __init__(self, store: ObjectStore, directory: Path, max_bytes: int) -> None:
        if any(sign in str(directory) for sign in _GLOB_SIGNS):
            raise UserError(f"cache directory {directory}: a path with one of {_GLOB_SIGNS} cannot be used")
        self._store = store
        self.directory = directory.resolve()
        self._max_bytes = max_bytes
        self._lock = Lock()
        self._sizes: OrderedDict[str, int] = OrderedDict()  # the least recently held first
        self._pins: Counter[str] = Counter()
        self._coming: dict[str, Future[None]] = {}
        self._pool = ThreadPoolExecutor(_FETCHES_AT_ONCE, thread_name_prefix="segment-fetch")
        self._adopt()

    @property
    def size(self) -> int:
        """Bytes of the files that are here or on their way."""
        with self._lock:
            return sum(self._sizes.values())

    @contextmanager
    def hold(self, _scan: Scan, segments: Iterable[Segment]) -> Iterator[Held]:
        """The segments' files, with what the scan reads of them, which stay while the context lasts. Raises what the
        store raises; Corrupt for an object that is not of the size the index states; TooLarge when they cannot fit."""
        wanted = {self._name(segment): segment for segment in segments}
        need = sum(segment.bytes for segment in wanted.values())
        if need > self._max_bytes:
            raise TooLarge(
                f"the query reads {need} bytes of segments, more than cache_max_bytes {self._max_bytes}: "
                "narrow its time range"
            )
        with self._lock:
            self._pins.update(wanted.keys())
            fetches = [self._fetch(name, segment) for name, segment in wanted.items()]
        try:
            wait(fetches)
            for fetch in fetches:
                fetch.result()
            files = {segment.id: HeldFile(self.directory / name) for name, segment in wanted.items()}
            yield Held(files, Account(read=len(files)))
        finally:
            with self._lock:
                self._release(wanted)

    def close(self) -> None:
        """Waits for the fetches that are on their way; the files stay for the next start."""
        self._pool.shutdown()

    def _name(self, segment: Segment) -> str:
        return f"{segment.organization}_{segment.id}.parquet"

    def _adopt(self) -> None:
        self.directory.mkdir(parents=True, exist_ok=True)
        files = [(path.stat(), path) for path in self.directory.iterdir() if path.is_file()]
        for status, path in sorted(files, key=lambda file: file[0].st_mtime_ns):
            if path.name.endswith(_HALF_FETCHED):
                path.unlink()
            elif path.suffix == ".parquet":
                self._sizes[path.name] = status.st_size
        self._evict()

    # With the lock held

    def _fetch(self, name: str, segment: Segment) -> Future[None]:
        """Done when the file is here. One who wants what is coming waits for that fetch."""
        if name in self._coming:
            return self._coming[name]
        if self._sizes.get(name) == segment.bytes:
            self._sizes.move_to_end(name)
            here: Future[None] = Future()
            here.set_result(None)
            return here
        self._sizes[name] = segment.bytes
        self._sizes.move_to_end(name)
        self._evict()
        self._coming[name] = self._pool.submit(self._bring, name, segment)
        return self._coming[name]

    def _release(self, names: Iterable[str]) -> None:
        for name in names:
            self._pins[name] -= 1
            if not self._pins[name]:
                del self._pins[name]
        self._evict()

    def _evict(self) -> None:
        excess = sum(self._sizes.values()) - self._max_bytes
        for name in [name for name in self._sizes if not self._pins[name]] if excess > 0 else ():
            if excess <= 0:
                break
            (self.directory / name).unlink(missing_ok=True)
            excess -= self._sizes.pop(name)

    # In the pool

    def _bring(self, name: str, segment: Segment) -> None:
        try:
            self._write(self.directory / name, self._read(segment))
        except BaseException:
            with self._lock:
                del self._sizes[name]
                del self._coming[name]
            raise
        with self._lock:
            del self._coming[name]

    def _read(self, segment: Segment) -> memoryview:
        try:
            data = self._store.get(segment.path, max_bytes=segment.bytes)
        except TooLarge as error:
            raise Corrupt(f"{segment.path} is larger than the {segment.bytes} bytes the index states") from error
        if len(data) != segment.bytes:
            raise Corrupt(f"{segment.path} has {len(data)} bytes, the index states {segment.bytes}")
        return data

    def _write(self, path: Path, data: memoryview) -> None:
        half = path.with_name(f"{path.name}.{token_hex(4)}{_HALF_FETCHED}")
        try:
            half.write_bytes(data)
            os.replace(half, path)
        except OSError as error:
            half.unlink(missing_ok=True)
            raise Unavailable(f"the segment cache cannot be written: {error.strerror}") from error
