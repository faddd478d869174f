"""The parent of the Python workers of queries: `python -m lakerunner.services.spark_daemon`, started by Spark on each
executor. A worker is a fork of it, with all loaded that Spark SQL's scans and units need.

What always holds: a worker can allocate no more than MEMORY_VARIABLE states (pipeline/daemon.py), and nothing here
opens a store, a process or a thread, so forking is safe.
"""

from __future__ import annotations

from lakerunner.pipeline.daemon import fork_workers, leave_archives, limit_memory

MODULE = "lakerunner.services.spark_daemon"

if __name__ == "__main__":
    leave_archives()
    import lakerunner.pipeline.ask.scan_source
    import lakerunner.pipeline.ask.spark_functions
    import lakerunner.services.spark_units  # noqa: F401 - loaded here, and so in every worker

    limit_memory()
    fork_workers()
