"""DuckDB instances, lent for one piece of work at a time and kept warm: to open one costs more than a small query does.

What always holds: an instance reads the files that lie in its own directory and no others, installs and loads nothing,
and its settings are locked before any SQL of a query runs. Each piece of work has a connection of its own, and in that
directory only its own files, as further names of those in the cache; both are gone when it ends. An instance that has
spilled, or that DuckDB gave up, is not lent again.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import replace
from itertools import count
from pathlib import Path
from threading import Lock
from uuid import UUID

import duckdb

from lakerunner.model.errors import Unavailable
from lakerunner.query.failures import Limits
from lakerunner.query.held import HeldFile
from lakerunner.query.kernels import KERNELS
from lakerunner.query.macros import MACROS
from lakerunner.query.scan import text

_KEPT_WARM = 4
_LENT_AT_MOST = 1000  # times, which bounds what it keeps of footers
_numbers = count()  # of this process: workers and coordinators may share a directory
_Settings = dict[str, str | bool | int | float | list[str]]
_ALWAYS: _Settings = {
    "autoinstall_known_extensions": "false",
    "autoload_known_extensions": "false",
    "allow_community_extensions": "false",
    "allow_persistent_secrets": "false",
    "python_enable_replacements": "false",
    # What it kept of a file may be a hole that the segment cache has filled since; the system caches files anyway.
    "enable_external_file_cache": "false",
}


class Instances:
    """`threads` are those of one instance; 0: one per core. The spill directory is on the file system of the segment
    cache. Safe to use from many threads."""

    def __init__(self, limits: Limits, *, threads: int, spill_directory: Path, spill_max: str = "10GB") -> None:
        self.limits = limits
        self._threads = threads or os.cpu_count() or 1
        self._spill_directory = spill_directory.resolve()
        self._spill_max = spill_max
        self._lock = Lock()
        self._idle: list[_Instance] = []
        self._forget_dead()

    def open(self, held: ExitStack) -> duckdb.DuckDBPyConnection:
        """A connection that reads no file; `held` gives it back."""
        return self._lend(held).connect(held)

    def open_over(
        self, held: ExitStack, files: Mapping[UUID, HeldFile]
    ) -> tuple[duckdb.DuckDBPyConnection, Mapping[UUID, HeldFile]]:
        """A connection that reads these files, under the paths that are given with it; `held` gives it back."""
        instance = self._lend(held)
        return instance.connect(held), instance.link(files)

    def close(self) -> None:
        """Those that are lent are closed when they are given back."""
        with self._lock:
            idle, self._idle = self._idle, []
        for instance in idle:
            instance.close()

    def _lend(self, held: ExitStack) -> _Instance:
        with self._lock:
            instance = self._idle.pop() if self._idle else None
        lent = instance or self._make()
        held.callback(self._take_back, lent)
        return lent

    def _take_back(self, instance: _Instance) -> None:
        sound = instance.clean()
        with self._lock:
            if sound and len(self._idle) < _KEPT_WARM:
                self._idle.append(instance)
                return
        instance.close()

    def _make(self) -> _Instance:
        limits: _Settings = {
            "memory_limit": self.limits.memory,
            "threads": str(self._threads),
            "max_execution_time": str(max(1, round(self.limits.seconds * 1000))),
        }
        return _Instance(self._spill_directory / f"{os.getpid()}-{next(_numbers)}", limits, self._spill_max)

    def _forget_dead(self) -> None:
        """Spill of a process that is no more; a live one's is named by its own number."""
        self._spill_directory.mkdir(parents=True, exist_ok=True)
        for path in self._spill_directory.iterdir():
            pid = path.name.partition("-")[0]
            if path.is_dir() and pid.isdigit() and not Path(f"/proc/{pid}").exists():
                shutil.rmtree(path, ignore_errors=True)


class _Instance:
    """Its directory is there while it is lent."""

    def __init__(self, directory: Path, limits: _Settings, spill_max: str) -> None:
        self._lent = 0
        self._directory = directory
        self._files = directory / "files"
        self._spill = directory / "spill"
        self._root = duckdb.connect(":memory:", config=_ALWAYS | limits | {"temp_directory": str(self._spill)})
        self._root.execute(f"SET allowed_directories = [{text(f'{self._files}/')}]; SET enable_external_access = false")
        # Given to connect(), this limit is shown and not kept.
        self._root.execute(f"SET max_temp_directory_size = {text(spill_max)}")
        self._root.execute("SET GLOBAL TimeZone = 'UTC'")  # a connection has its own otherwise
        # A footer never changes, and a file's name is its segment's: reading it again is half of a small query's time.
        self._root.execute("SET GLOBAL parquet_metadata_cache = true")
        for macro in MACROS:
            self._root.execute(macro)
        for kernel in KERNELS:
            kernel.create(self._root)
        self._root.execute("SET lock_configuration = true")

    def connect(self, held: ExitStack) -> duckdb.DuckDBPyConnection:
        """Its temporary views, and what is registered on it, are its own."""
        self._directory.mkdir()
        connection = self._root.cursor()
        held.callback(connection.close)
        return connection

    def link(self, files: Mapping[UUID, HeldFile]) -> Mapping[UUID, HeldFile]:
        linked = {id_: replace(file, path=self._files / f"{id_}.parquet") for id_, file in files.items()}
        try:
            self._files.mkdir()
            for id_, file in files.items():
                os.link(file.path, linked[id_].path)
        except OSError as error:
            raise Unavailable(
                f"a segment's file cannot be linked ({error.strerror}): the worker's cache and spill directories "
                "need one file system, with hard links"
            ) from error
        return linked

    def clean(self) -> bool:
        """Take away what the work left; False if the instance is not fit for more."""
        spilled = self._spill.exists()
        shutil.rmtree(self._directory, ignore_errors=True)
        self._lent += 1
        try:
            return not spilled and self._lent < _LENT_AT_MOST and self._root.execute("SELECT 1").fetchall() == [(1,)]
        except duckdb.Error:
            return False

    def close(self) -> None:
        self._root.close()
        shutil.rmtree(self._directory, ignore_errors=True)
