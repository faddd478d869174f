"""DuckDB instances, each for one piece of work: within limits, with our macros, and able to reach nothing but the
files it is given.

What always holds: an instance reads those files and no others, installs and loads nothing, and its settings are locked
before any SQL of a query runs. Its spill files go when it is closed.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable
from contextlib import ExitStack
from itertools import count
from pathlib import Path

import duckdb

from lakerunner.query.failures import Limits
from lakerunner.query.macros import MACROS
from lakerunner.query.scan import text

_Settings = dict[str, str | bool | int | float | list[str]]
_ALWAYS: _Settings = {
    "autoinstall_known_extensions": "false",
    "autoload_known_extensions": "false",
    "allow_community_extensions": "false",
    "allow_persistent_secrets": "false",
    "python_enable_replacements": "false",
}


class Instances:
    """`threads` are those of one instance; 0: one per core. Safe to use from many threads."""

    def __init__(self, limits: Limits, *, threads: int, spill_directory: Path, spill_max: str = "10GB") -> None:
        self.limits = limits
        self._threads = threads or os.cpu_count() or 1
        self._spill_directory = spill_directory.resolve()
        self._spill_max = spill_max
        self._numbers = count()
        self._forget_dead()

    def open(self, held: ExitStack, files: Iterable[Path] = ()) -> duckdb.DuckDBPyConnection:
        """A connection that reads these files; `held` closes it. To be locked before it runs a query's SQL."""
        spill = self._spill_directory / f"{os.getpid()}-{next(self._numbers)}"
        held.callback(shutil.rmtree, spill, ignore_errors=True)
        limits: _Settings = {
            "memory_limit": self.limits.memory,
            "threads": str(self._threads),
            "max_execution_time": str(max(1, round(self.limits.seconds * 1000))),
            "temp_directory": str(spill),
        }
        connection = duckdb.connect(":memory:", config=_ALWAYS | limits)
        held.callback(connection.close)
        allowed = ", ".join(text(str(path)) for path in files)
        connection.execute(f"SET allowed_paths = [{allowed}]; SET enable_external_access = false")
        connection.execute("SET TimeZone = 'UTC'")
        # Given to connect(), this limit is shown and not kept.
        connection.execute(f"SET max_temp_directory_size = {text(self._spill_max)}")
        for macro in MACROS:
            connection.execute(macro)
        return connection

    def _forget_dead(self) -> None:
        """Spill of a process that is no more; a live one's is named by its own number."""
        self._spill_directory.mkdir(parents=True, exist_ok=True)
        for path in self._spill_directory.iterdir():
            pid = path.name.partition("-")[0]
            if path.is_dir() and pid.isdigit() and not Path(f"/proc/{pid}").exists():
                shutil.rmtree(path, ignore_errors=True)


def lock(connection: duckdb.DuckDBPyConnection) -> None:
    connection.execute("SET lock_configuration = true")
