"""Compiles kernels before someone waits for them. numba keeps what it compiled on disk, so this takes long only once.

`python -m lakerunner.services.warm` compiles all of them, in as many processes as there are cores: `make setup` does.
"""

from __future__ import annotations

import threading
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

from lakerunner.api.formats.series_rows import warm as warm_rows
from lakerunner.pipeline.push_check import warm as warm_checks
from lakerunner.pipeline.read.remote_write import warm_remote_write
from lakerunner.pipeline.segments import warm as warm_readers
from lakerunner.pipeline.warm import warm as warm_tending
from lakerunner.query.metrics.kernels import warm as warm_scans
from lakerunner.query.metrics.ties import warm as warm_ties
from lakerunner.query.metrics.warm import warm as warm_functions
from lakerunner.query.metrics.window_kernels import warm as warm_windows
from lakerunner.query.sandbox.pool import Sandboxes


def warm_queries() -> None:
    for warm in (warm_scans, warm_ties, warm_windows, warm_functions, warm_rows):
        warm()


def warm_queries_aside(sandboxes: Sandboxes) -> None:
    """At once: in threads that no one waits for."""
    threading.Thread(target=warm_queries, name="metrics-warm", daemon=True).start()
    threading.Thread(target=sandboxes.warm, name="sandbox-warm", daemon=True).start()


def warm_pipeline() -> None:
    warm_readers()
    warm_checks()
    warm_tending()


# Each in a process of its own. What two of them need is compiled twice; remote write is ready when readers come to it.
_SHARES = (warm_pipeline, warm_remote_write, warm_queries)


if __name__ == "__main__":
    with ProcessPoolExecutor(mp_context=get_context("spawn")) as pool:
        for share in [pool.submit(share) for share in _SHARES]:
            share.result()
