"""The home of a lake: one process at a time serves from it. While it does, `HOME/address` names its URL.

`HOME/token` holds a secret that is as good as a key of the default organization with every role: who can read the
directory may administer the lake, and a web page, which can reach the address, cannot read it."""

from __future__ import annotations

import fcntl
import os
import secrets
from pathlib import Path

from lakerunner.model.errors import UserError

ADDRESS = "address"
TOKEN = "token"  # noqa: S105 - the name of its file


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
        self._token = directory / TOKEN
        self.token = f"lrt_{secrets.token_urlsafe(32)}"
        _write_private(self._token, self.token)

    def announce(self, url: str) -> None:
        """Last of all, so that whoever finds the file finds everything up."""
        draft = self._address.with_suffix(".new")
        draft.write_text(url + "\n")
        draft.replace(self._address)

    def close(self) -> None:
        self._address.unlink(missing_ok=True)
        self._token.unlink(missing_ok=True)
        os.close(self._lock)


def token_in(directory: Path) -> str | None:
    """Return the token of the process that serves from this home; None if there is none or it cannot be read."""
    try:
        return (directory / TOKEN).read_text().strip() or None
    except OSError:
        return None


def _write_private(path: Path, text: str) -> None:
    """Write a file that only its owner can read, at any moment and whatever stood there before."""
    draft = path.with_suffix(".new")
    draft.unlink(missing_ok=True)
    file = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        os.write(file, f"{text}\n".encode())
    finally:
        os.close(file)
    draft.replace(path)
