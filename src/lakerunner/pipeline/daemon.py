"""The parent of Spark's Python workers: `python -m lakerunner.pipeline.daemon`, started by Spark on each executor.

Spark's own daemon forks bare workers, and each of them imports everything again. This one imports what tasks need
and compiles their kernels first, then hands over to Spark's: a worker is a fork of it, warm at birth, and shares
its memory. What always holds: nothing here opens a store, a connection or a thread, so forking is safe.

Spark puts zip and jar files on the workers' path, and reads their directories again before every task (0.1 s of
CPU). The environment that holds lakerunner holds pyspark too, so they are taken off.
"""

from __future__ import annotations

import gc
import sys


def leave_archives() -> None:
    """Take zip and jar files off the path."""
    sys.path[:] = [entry for entry in sys.path if not entry.endswith((".zip", ".jar"))]
    sys.path_importer_cache.clear()


def fork_workers() -> None:
    """Become Spark's daemon, with what is loaded by now. Does not return."""
    from pyspark import daemon

    gc.freeze()  # what is loaded now is never collected: keep it shared with the workers
    daemon.manager()  # type: ignore[no-untyped-call]


def main() -> None:
    leave_archives()
    import lakerunner.pipeline.ingest
    import lakerunner.pipeline.rollup.job  # noqa: F401 - loaded here, and so in every worker
    from lakerunner.pipeline.rollup.warm import warm as warm_buckets
    from lakerunner.pipeline.segments import warm

    warm()
    warm_buckets()
    fork_workers()


if __name__ == "__main__":
    main()
