"""The parent of the Python workers that queries need: as pipeline/daemon.py, without the kernels of ingest."""

from __future__ import annotations

from lakerunner.pipeline.daemon import fork_workers, leave_archives

if __name__ == "__main__":
    leave_archives()
    import lakerunner.pipeline.ask.functions
    import lakerunner.pipeline.ask.source  # noqa: F401 - loaded here, and so in every worker

    fork_workers()
