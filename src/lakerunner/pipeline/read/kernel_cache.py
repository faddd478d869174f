"""Where the machine code of kernels is kept on disk, and how the processes of a machine share the work of compiling.

numba's cache has two gaps, which this closes:

- It checks the file of a kernel, not the files of the kernels that it calls. The directory of the pipeline's kernels is
  therefore named after all sources that they call: if one changes, all are compiled again.
- Two processes that miss the same kernel both compile it. Worse, if they save two signatures of one kernel at the same
  time, both may get the same data file, and a later process loads the code of the wrong one. After `share_kernels`, a
  process that misses a kernel locks it, looks again, compiles and saves it, and unlocks it.

What always holds: a lock never makes a kernel fail. Where locks do not work, or one is held for too long, the process
compiles the kernel itself.
"""

from __future__ import annotations

import errno
import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from hashlib import blake2b
from pathlib import Path
from typing import Any

import numba
from numba.core import caching as numba_caching

caching: Any = numba_caching
_PIPELINE = Path(__file__).resolve().parents[1]
_FOLDERS = ("read", "remote_write", "steps")  # whose kernels call each other
_LOCK_FILE = "kernels.lock"
_LOOK_SECONDS = 0.02
_LONGEST_WAIT_SECONDS = 60.0  # the largest kernel compiles in three


def _cache_directory() -> Path:
    sources = blake2b(digest_size=8)
    for path in sorted(path for folder in _FOLDERS for path in _PIPELINE.glob(f"{folder}/*.py")):
        sources.update(path.read_bytes())
    config: Any = numba.config
    root = Path(config.CACHE_DIR) if config.CACHE_DIR else _PIPELINE / "__pycache__"
    return root / f"kernels-{sources.hexdigest()}"


DIRECTORY = _cache_directory()


class _PipelineLocator(caching.InTreeCacheLocator):  # type: ignore[misc]
    """Keep the pipeline's kernels, and no others, in `DIRECTORY`. If all kernels went there (numba.config.CACHE_DIR),
    the place of those of queries would depend on which module a process imports first."""

    def __init__(self, function: Any, file: str) -> None:
        super().__init__(function, file)
        self._cache_path = str(DIRECTORY / self.get_suitable_cache_subpath(file))

    @classmethod
    def from_function(cls, function: Any, file: str) -> Any:
        return super().from_function(function, file) if Path(file).is_relative_to(_PIPELINE) else None


caching.CacheImpl._locator_classes.insert(0, _PipelineLocator)


class _Locks:
    """Locks of kernels, each one byte of a lock file of its directory. They belong to the process: a fork has none, and
    a process that dies leaves none."""

    def __init__(self) -> None:
        self._files: dict[str, int] = {}

    def acquire(self, directory: str, name: str) -> None:
        deadline = time.monotonic() + _LONGEST_WAIT_SECONDS
        with suppress(OSError):  # a file system without locks, or a directory that we may not write to
            file = self._file(directory)
            while time.monotonic() < deadline:
                try:
                    fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, _byte_of(name))
                except OSError as error:
                    if error.errno not in (errno.EACCES, errno.EAGAIN):
                        raise
                    time.sleep(_LOOK_SECONDS)
                else:
                    return

    def release(self, directory: str, name: str) -> None:
        if directory in self._files:
            with suppress(OSError):
                fcntl.lockf(self._files[directory], fcntl.LOCK_UN, 1, _byte_of(name))

    def _file(self, directory: str) -> int:
        # Never closed: to close any descriptor of a file gives up all locks that the process has on it.
        if directory not in self._files:
            self._files[directory] = os.open(Path(directory, _LOCK_FILE), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        return self._files[directory]


def _byte_of(name: str) -> int:
    return int.from_bytes(blake2b(name.encode(), digest_size=7).digest()) >> 1


_locks = _Locks()
_load, _save = caching.FunctionCache.load_overload, caching.FunctionCache.save_overload


def share_kernels() -> None:
    """Let this process wait for kernels that another one is compiling. numba calls `load_overload`, compiles on a miss,
    and calls `save_overload`; it does so under a lock of the process, so threads do not meet here. A kernel locks those
    that it calls while it is locked itself; calls have no cycles, so neither have waits."""

    def load(cache: Any, signature: Any, context: Any) -> Any:
        found = _load(cache, signature, context)
        if found is None:
            _locks.acquire(cache.cache_path, cache._impl.filename_base)
            found = _load(cache, signature, context)
            if found is not None:
                _locks.release(cache.cache_path, cache._impl.filename_base)
        return found

    def save(cache: Any, signature: Any, compiled: Any) -> None:
        try:
            _save(cache, signature, compiled)
        finally:
            _locks.release(cache.cache_path, cache._impl.filename_base)

    caching.FunctionCache.load_overload = load
    caching.FunctionCache.save_overload = save


@contextmanager
def announce_compiling() -> Iterator[int]:
    """Yield a file descriptor to pass to processes that compile: as long as one of them has it, `is_compiling` is true
    in every process of this machine. OSError if the directory of kernels cannot be written to."""
    DIRECTORY.mkdir(parents=True, exist_ok=True)
    file = os.open(_compiling_file(), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        # Not a lock of the process as above: this one belongs to the open file, and so to all who inherit it.
        fcntl.flock(file, fcntl.LOCK_SH)
        yield file
    finally:
        os.close(file)


def is_compiling() -> bool:
    """Return whether processes compile kernels in the background."""
    try:
        file = os.open(_compiling_file(), os.O_RDWR | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    finally:
        os.close(file)
    return False


def _compiling_file() -> Path:
    return DIRECTORY / "compiling"
