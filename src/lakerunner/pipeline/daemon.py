"""The parent of Spark's Python workers: `python -m lakerunner.pipeline.daemon`, started by Spark on each executor.

Spark's own daemon forks bare workers, and each of them imports everything again. This one imports what tasks need and
compiles their kernels first, then runs Spark's: a worker is a fork of it, warm from the start, and shares its memory.
What always holds: nothing here opens a store, a connection or a thread, so forking is safe.

Spark puts zip and jar files on the workers' path, and reads their directories again before every task (0.1 s of CPU).
The environment that holds lakerunner holds pyspark too, so they are removed.
"""

from __future__ import annotations

import gc
import os
import resource
import sys
from pathlib import Path

MEMORY_VARIABLE = "PYSPARK_QUERY_MEMORY_BYTES"


def leave_archives() -> None:
    """Remove zip and jar files from the path."""
    sys.path[:] = [entry for entry in sys.path if not entry.endswith((".zip", ".jar"))]
    sys.path_importer_cache.clear()


def limit_memory() -> None:
    """Let this process, and each one that is forked from it, allocate as many bytes as MEMORY_VARIABLE states beyond
    what it holds now. An allocation beyond that fails, in that process alone, and its query ends.

    RLIMIT_AS, which Spark would set by spark.executor.pyspark.memory, counts what allocators reserve and never use.
    """
    statm = Path("/proc/self/statm")
    if MEMORY_VARIABLE in os.environ and statm.exists():
        held = int(statm.read_text().split()[5]) * resource.getpagesize()
        most = held + int(os.environ[MEMORY_VARIABLE])
        resource.setrlimit(resource.RLIMIT_DATA, (most, most))


def fork_workers() -> None:
    """Become Spark's daemon, with everything that is loaded by now. Does not return."""
    from pyspark import daemon

    gc.freeze()  # what is loaded now is never collected: keep it shared with the workers
    daemon.manager()  # type: ignore[no-untyped-call]


def main() -> None:
    leave_archives()
    import lakerunner.pipeline.ingest  # noqa: F401 - loaded here, and so in every worker
    from lakerunner.kernel_cache import is_compiling
    from lakerunner.pipeline.remote_write.reader import warm_remote_write
    from lakerunner.pipeline.signals import REQUESTS
    from lakerunner.pipeline.warm import warm_fold, warm_signal

    for signal in REQUESTS:
        warm_signal(signal)
    # At the first start of a lake other processes compile the rest. Ingest of OTLP does not wait for it; the workers of
    # this daemon load it when they need it.
    if not is_compiling():
        warm_remote_write()
        warm_fold()
    fork_workers()


if __name__ == "__main__":
    main()
