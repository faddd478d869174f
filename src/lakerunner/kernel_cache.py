"""Compile numba kernels, and share their machine code on disk between the processes of a machine.

Kernels are decorated with `njit` and `vectorize` of this module, not with numba's (tests/test_house.py). numba's cache
has these gaps, which this closes:

- It checks the file of a kernel, not the files of the kernels, constants and types that it uses. The directory of a
  kernel is therefore named after the sources of its module and of every module of ours that this one imports, directly
  or not: if one changes, the kernel is compiled again.
- It writes the index of a kernel before the machine code. A process that is killed in between leaves an index that
  names the code of older sources, if that is there. A directory here only ever has code of the same sources.
- Two processes that miss the same kernel both compile it. Worse, if they save two signatures of one kernel at the same
  time, both may get the same data file, and a later process loads the code of the wrong one. Here a process that misses
  a kernel locks it, looks again, compiles and saves it, and unlocks it.

What always holds: neither a lock nor the disk makes a kernel fail. Where locks do not work, or one is held for too
long, the process compiles the kernel itself; what cannot be saved is compiled again by the next process.
"""

from __future__ import annotations

import errno
import fcntl
import inspect
import os
import re
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from functools import cache
from hashlib import blake2b
from pathlib import Path
from pickle import UnpicklingError
from tempfile import TemporaryFile
from typing import Any

import numba
from numba.core import caching as numba_caching
from numba.core.registry import cpu_target
from numba.misc import appdirs as numba_appdirs

# numba has no types for mypy.
_numba: Any = numba
_caching: Any = numba_caching
_appdirs: Any = numba_appdirs
_PACKAGE = Path(__file__).resolve().parent
_LOOK_SECONDS = 0.02
_LONGEST_WAIT_SECONDS = 60.0  # the largest kernel compiles in three
# Imports inside functions and for annotations count as well: they can only compile a kernel once too often.
_IMPORT = re.compile(rb"^[ \t]*(?:from (lakerunner[\w.]*) import (\([^)]*\)|.*)|import (lakerunner[\w.]*))", re.M)


def njit(*, cache: bool = False, **options: Any) -> Callable[[Any], Any]:
    """Decorate a kernel as numba.njit does. With `cache`, its machine code is kept on disk."""

    def decorate(function: Any) -> Any:
        kernel = _numba.njit(**options)(function)
        if cache:
            kernel._cache = KernelCache(function)
        return kernel

    return decorate


def vectorize(function: Any) -> Any:
    """Make a ufunc of this function, and keep its machine code on disk."""
    ufunc = _numba.vectorize(nopython=True)(function)
    ufunc._dispatcher.cache = KernelCache(function)
    return ufunc


def _cache_directory() -> Path:
    """Return the first place that can be written to: NUMBA_CACHE_DIR, beside the package, the user's cache."""
    beside = _PACKAGE / "__pycache__"
    places = [Path(_numba.config.CACHE_DIR)] if _numba.config.CACHE_DIR else []
    places += [beside, Path(_appdirs.AppDirs(appname="numba", appauthor=False).user_cache_dir)]
    for place in places:
        with suppress(OSError):
            place.mkdir(parents=True, exist_ok=True)
            TemporaryFile(dir=place).close()
            return place / "lakerunner-kernels"
    return beside / "lakerunner-kernels"  # where nothing can be saved


DIRECTORY = _cache_directory()


@cache
def _source_digest(file: str) -> str:
    """Return a digest of this source file, of all of ours that it imports, of what compiles them, and of the processor.
    A process reads each file once, so that the digest is that of the code which it runs."""
    processor = cpu_target.target_context.codegen().magic_tuple()
    digest = blake2b(f"{numba.__version__} {sys.version} {processor}".encode(), digest_size=8)
    for path in sorted(_imports(file)):
        digest.update(_read(path)[0])
    return digest.hexdigest()


@cache
def _imports(file: str) -> frozenset[str]:
    """Return this source file and all of ours that it imports, directly or not."""
    found = {file}
    left = [file]
    while left:
        new = set(_read(left.pop())[1]) - found
        found |= new
        left += new
    return frozenset(found)


@cache
def _read(file: str) -> tuple[bytes, tuple[str, ...]]:
    """Return the digest of a source file, and the files of ours that it imports."""
    source = Path(file).read_bytes()
    imported: list[str] = []
    for package, names, module in _IMPORT.findall(source):
        imported += _files(package.decode() or module.decode(), names.decode())
    return blake2b(source).digest(), tuple(imported)


@cache
def _files(module: str, names: str) -> tuple[str, ...]:
    """Return the files of this module, and of those of these names that are modules inside it."""
    path = f"{_PACKAGE.parent}/{module.replace('.', '/')}"
    if os.path.isfile(f"{path}.py"):
        return (f"{path}.py",)
    inside = (f"{path}/{name}" for name in re.findall(r"\w+", names))
    places = [f"{path}/__init__.py", *(place for name in inside for place in (f"{name}.py", f"{name}/__init__.py"))]
    return tuple(place for place in places if os.path.isfile(place))


class _Locator(_caching._CacheLocator):  # type: ignore[misc]
    """Say where the machine code of a kernel is, in numba's terms."""

    def __init__(self, function: Any, file: str) -> None:
        self._py_file = file  # numba names it in warnings
        self._lineno = function.__code__.co_firstlineno
        self._path = str(DIRECTORY / f"{function.__module__}-{_source_digest(file)}")

    @classmethod
    def from_function(cls, function: Any, file: str) -> Any:
        return cls(function, file)

    def ensure_cache_path(self) -> None:
        os.makedirs(self._path, exist_ok=True)

    def get_cache_path(self) -> str:
        return self._path

    def get_source_stamp(self) -> str:
        return ""  # the path has it

    def get_disambiguator(self) -> str:
        return str(self._lineno)


class _KernelCacheFiles(_caching.CompileResultCacheImpl):  # type: ignore[misc]
    _locator_classes = (_Locator,)


class _Locks:
    """Locks of kernels, each one byte of a file. They belong to the process: a fork has none, and a process that dies
    leaves none."""

    def __init__(self) -> None:
        self._descriptor = -1

    def acquire(self, name: str) -> None:
        deadline = time.monotonic() + _LONGEST_WAIT_SECONDS
        with suppress(OSError):  # a file system without locks, or a directory that we may not write to
            file = self._file()
            while time.monotonic() < deadline:
                try:
                    fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, _byte_of(name))
                except OSError as error:
                    if error.errno not in (errno.EACCES, errno.EAGAIN):
                        raise
                    time.sleep(_LOOK_SECONDS)
                else:
                    return

    def release(self, name: str) -> None:
        if self._descriptor >= 0:
            with suppress(OSError):
                fcntl.lockf(self._descriptor, fcntl.LOCK_UN, 1, _byte_of(name))

    def _file(self) -> int:
        # Never closed: to close any descriptor of a file gives up all locks that the process has on it.
        if self._descriptor < 0:
            DIRECTORY.mkdir(parents=True, exist_ok=True)
            self._descriptor = os.open(DIRECTORY / "locks", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        return self._descriptor


def _byte_of(name: str) -> int:
    return int.from_bytes(blake2b(name.encode(), digest_size=7).digest()) >> 1


_locks = _Locks()
_kernels: list[KernelCache] = []  # of this process


class KernelCache(_caching.FunctionCache):  # type: ignore[misc]
    """The machine code of one kernel. numba calls `load_overload`, compiles on a miss, and calls `save_overload`; it
    does so under a lock of the process, so threads do not meet here. A kernel locks those that it calls while it is
    locked itself; calls have no cycles, so neither have waits."""

    _impl_class = _KernelCacheFiles

    def __init__(self, function: Any) -> None:
        super().__init__(function)
        self.file = inspect.getfile(function)
        _kernels.append(self)

    @property
    def is_compiled(self) -> bool:
        """Whether there is machine code for some types of arguments."""
        return os.path.exists(self._cache_file._index_path)

    def load_overload(self, signature: Any, context: Any) -> Any:
        found = self._find(signature, context)
        if found is None:
            _locks.acquire(self._lock)
            found = self._find(signature, context)
            if found is not None:
                _locks.release(self._lock)
        return found

    def save_overload(self, signature: Any, compiled: Any) -> None:
        try:
            with suppress(OSError):
                super().save_overload(signature, compiled)
        finally:
            _locks.release(self._lock)

    def _find(self, signature: Any, context: Any) -> Any:
        try:
            return super().load_overload(signature, context)
        except (OSError, EOFError, UnpicklingError):  # damaged, for example by a loss of power
            with suppress(OSError):
                os.unlink(self._cache_file._index_path)
            return None

    @property
    def _lock(self) -> str:
        return f"{self.cache_path}/{self._impl.filename_base}"

    def _index_key(self, signature: Any, codegen: Any) -> Any:
        """Add the fields of named tuples: numba compares them by their class alone, and a kernel may get one whose
        module its own does not import."""
        return (*super()._index_key(signature, codegen), tuple(_fields(signature)))


def _fields(kind: Any) -> Iterator[tuple[str, ...]]:
    if isinstance(kind, _numba.types.BaseNamedTuple):
        yield kind.fields
    for inner in kind if isinstance(kind, tuple | _numba.types.BaseTuple) else ():
        yield from _fields(inner)


def kernels_of(functions: Iterable[Callable[..., Any]]) -> list[KernelCache]:
    """Return the kernels of all modules of ours that the modules of these functions import, directly or not."""
    files = frozenset[str]().union(*(_imports(inspect.getfile(function)) for function in functions))
    return [kernel for kernel in _kernels if kernel.file in files]


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
