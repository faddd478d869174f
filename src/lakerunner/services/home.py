"""The home of a lake: one process at a time serves from it, and `HOME/address` tells where, while it does."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

from lakerunner.model.errors import UserError

ADDRESS = "address"


class Home:
    """Taken before anything starts, so that an address left by a killed process is gone before anyone reads it."""

    def __init__(self, directory: Path) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self._address = directory / ADDRESS
        self._lock = os.open(directory / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.pread(self._lock, 20, 0).decode().strip() or "of an unknown id"
            os.close(self._lock)
            raise UserError(
                f"process {holder} runs with home {directory} already: stop it, or take another --home"
            ) from None
        os.ftruncate(self._lock, 0)
        os.pwrite(self._lock, f"{os.getpid()}\n".encode(), 0)
        self._address.unlink(missing_ok=True)

    def announce(self, url: str) -> None:
        """Last of all, so that whoever finds the file finds everything up."""
        draft = self._address.with_suffix(".new")
        draft.write_text(url + "\n")
        draft.replace(self._address)

    def close(self) -> None:
        self._address.unlink(missing_ok=True)
        os.close(self._lock)
