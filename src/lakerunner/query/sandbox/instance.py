"""The DuckDB instance of a sandbox, opened before the sandbox is confined and locked before it runs anything.

What always holds: the instance reads the files of its own directory and no others, installs and loads nothing, and its
settings are locked. Each piece of work has a connection of its own, whose views and relations go with it.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import duckdb

from lakerunner.query.sandbox.confine import FILES, SPILL
from lakerunner.query.sandbox.kernels import KERNELS
from lakerunner.query.sandbox.macros import MACROS
from lakerunner.query.scan import text

_ALWAYS: dict[str, str | bool | int | float | list[str]] = {
    # One thread, until the process is confined: confinement binds only threads that start after it.
    "threads": "1",
    "async_threads": "0",
    "autoinstall_known_extensions": "false",
    "autoload_known_extensions": "false",
    "allow_community_extensions": "false",
    "allow_persistent_secrets": "false",
    "python_enable_replacements": "false",
    # What it kept of a file may be a hole that the segment cache has filled since; the system caches files anyway.
    "enable_external_file_cache": "false",
}


def open_instance() -> duckdb.DuckDBPyConnection:
    """An instance with our macros and kernels, without limits yet. No thread is started."""
    root = duckdb.connect(":memory:", config=_ALWAYS)
    root.execute("SET GLOBAL TimeZone = 'UTC'")  # a connection has its own otherwise
    root.execute("SET GLOBAL errors_as_json = true")  # which say where in the SQL they are (child.py)
    # A footer never changes, and a file's name is its segment's: reading it again is half of a small query's time.
    root.execute("SET GLOBAL parquet_metadata_cache = true")
    for macro in MACROS:
        root.execute(macro)
    for kernel in KERNELS:
        kernel.create(root)
    return root


def limit(root: duckdb.DuckDBPyConnection, directory: Path, limits: dict[str, Any]) -> None:
    """Give the instance its directory and limits: `memory`, `milliseconds`, `spill`."""
    root.execute(f"SET temp_directory = {text(str(directory / SPILL))}")
    root.execute(f"SET allowed_directories = [{text(f'{directory / FILES}/')}]")
    root.execute("SET enable_external_access = false")
    root.execute(f"SET memory_limit = {text(limits['memory'])}")
    root.execute(f"SET max_temp_directory_size = {text(limits['spill'])}")
    root.execute(f"SET GLOBAL max_execution_time = {int(limits['milliseconds'])}")


def lock(root: duckdb.DuckDBPyConnection, threads: int) -> None:
    """The last step: start the threads and refuse every further setting."""
    root.execute(f"SET threads = {int(threads)}")
    root.execute("SET lock_configuration = true")
