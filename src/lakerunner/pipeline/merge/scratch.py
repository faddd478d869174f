"""Room on the local disk for a task's files.

What always holds: it is gone when the task is over. What a task that was killed left behind, the next one on this
machine clears away: every directory has a lock, which dies with its process.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

PREFIX = "lakerunner-merge-"
_LOCK = "lock"


@contextmanager
def scratch() -> Iterator[Path]:
    """A directory of our own, empty but for its lock."""
    _clear(Path(tempfile.gettempdir()))
    while True:
        directory = Path(tempfile.mkdtemp(prefix=PREFIX))
        with (directory / _LOCK).open("wb") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not os.fstat(lock.fileno()).st_nlink:
                continue  # between our open and our lock another had it, and took the directory for a dead one's
            try:
                yield directory
            finally:
                shutil.rmtree(directory, ignore_errors=True)
            return


def _clear(parent: Path) -> None:
    """One without a lock is just being made, or half gone: the next task looks again."""
    for directory in parent.glob(PREFIX + "*"):
        with suppress(OSError):
            if directory.stat().st_uid != os.getuid():
                continue
            with (directory / _LOCK).open("rb") as lock:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(directory, ignore_errors=True)
