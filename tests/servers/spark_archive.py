"""An archive of Spark's classes, which spares every JVM of a test run half of its start.

`python -m servers.spark_archive FILE` runs one session and writes FILE; `use_archive` has every Spark of this process
and of its children load it. A JVM that cannot use the archive (another Java or Spark, no file) starts without it, as
it does outside of the tests.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

# Spark's launcher adds these options to the command of each session; SPARK_ variables pass pipeline/jvm.py.
_VARIABLE = "SPARK_SUBMIT_OPTS"
_QUIET = "-Xlog:cds=off -Xlog:cds+dynamic=off"
_QUERY = """
SELECT key, count(*) AS n, max(text) AS last FROM (SELECT id, id % 7 AS key, 'a' || id AS text FROM range(1000))
JOIN (SELECT id FROM range(500)) USING (id) GROUP BY key ORDER BY key"""
_WRITE_SECONDS = 300.0  # the archive is written while the JVM ends


def use_archive(archive: Path) -> None:
    """Load the archive in each JVM that starts from now on, if it is there. Those for queries do without the optimizing
    compiler as well: a test ends before it pays."""
    if archive.exists():
        os.environ[_VARIABLE] = f"-XX:SharedArchiveFile={archive} {_QUIET} -XX:TieredStopAtLevel=1"


def write_archive(archive: Path) -> None:
    """Run what most sessions run, then write the classes that it took. The file appears complete or not at all."""
    from lakerunner.pipeline.job import run_tasks
    from lakerunner.pipeline.session import close_session, open_session
    from servers.spark import spark_settings

    archive.parent.mkdir(parents=True, exist_ok=True)
    draft = archive.with_suffix(f".{os.getpid()}")
    os.environ[_VARIABLE] = f"-XX:ArchiveClassesAtExit={draft} {_QUIET}"
    with TemporaryDirectory() as work:
        session = open_session(spark_settings(Path(work)), "archive")
        try:
            run_tasks(session, "archive", [1, 2], abs)
            session.sql(_QUERY).toArrow()
        finally:
            close_session(session, _WRITE_SECONDS)
    if draft.exists():
        draft.replace(archive)


if __name__ == "__main__":
    write_archive(Path(sys.argv[1]).resolve())
