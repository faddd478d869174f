"""Compiles kernels before someone waits for them. numba keeps what it compiled on disk, so this takes long only once.

`python -m lakerunner.services.warm` compiles all of them: `make setup` does.
"""

from __future__ import annotations

import threading

from lakerunner.api.formats.series_rows import warm as warm_rows
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


if __name__ == "__main__":
    warm_readers()
    warm_tending()
    warm_queries()
