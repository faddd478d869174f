"""A directory that no other process uses.

Several workers of one machine may be given the same one: the first takes it, each further one takes the next,
`segments-2`, `segments-3`. A lock says which are taken, and goes with its process; so after a restart the first free
one is taken, with what its last owner left there.
"""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

from lakerunner.model.errors import Unavailable

_MOST = 64


class OwnDirectory:
    """`path` is this process's until `close`, or its end."""

    def __init__(self, wanted: Path) -> None:
        wanted.parent.mkdir(parents=True, exist_ok=True)
        for number in range(1, _MOST + 1):
            path = wanted if number == 1 else wanted.with_name(f"{wanted.name}-{number}")
            # Beside the directory, not in it: closing any descriptor of this file would give the lock up.
            self._lock = os.open(path.with_name(f"{path.name}.lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
            try:
                fcntl.lockf(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                os.close(self._lock)
                continue
            path.mkdir(exist_ok=True)
            self.path = path
            return
        raise Unavailable(
            f"{_MOST} processes already use {wanted} and the directories beside it: choose another directory"
        )

    def close(self) -> None:
        """Closing twice is fine."""
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1
