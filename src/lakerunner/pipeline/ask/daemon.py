"""The parent of the Python workers that queries need: as pipeline/daemon.py, without the kernels of ingest.

What always holds: a worker can allocate no more than MEMORY_VARIABLE says. Beyond it an allocation fails, in that
worker and nowhere else, and its query ends (run.py).
"""

from __future__ import annotations

import os
import resource
from pathlib import Path

from lakerunner.pipeline.daemon import fork_workers, leave_archives

MEMORY_VARIABLE = "PYSPARK_QUERY_MEMORY_BYTES"


def limit_memory() -> None:
    """Bound the data of this process, and so of each one that is forked from it, to so much beyond what it holds now.

    RLIMIT_AS, which Spark would set by spark.executor.pyspark.memory, counts what allocators reserve and never use.
    """
    statm = Path("/proc/self/statm")
    if MEMORY_VARIABLE in os.environ and statm.exists():
        held = int(statm.read_text().split()[5]) * resource.getpagesize()
        most = held + int(os.environ[MEMORY_VARIABLE])
        resource.setrlimit(resource.RLIMIT_DATA, (most, most))


if __name__ == "__main__":
    leave_archives()
    import lakerunner.pipeline.ask.functions
    import lakerunner.pipeline.ask.source  # noqa: F401 - loaded here, and so in every worker

    limit_memory()
    fork_workers()
