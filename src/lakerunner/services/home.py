"""The home of a lake: one process at a time serves from it. While it does, `HOME/address` names its URL, and with TLS
`HOME/certificate` holds the certificate that it presents: our commands trust that one there, and no other.

`HOME/token` holds a secret that is as good as a key of the default organization with every role: who can read the
directory may administer the lake, and a web page, which can reach the address, cannot read it.

It holds telemetry that only its owner may read: `make_private` closes the directory, and the umask of the command line
(cli.py) everything that is created in it. If root runs the embedded PostgreSQL, the server runs as another user
(index/programs.py) and must be able to enter: then HOME has mode 0711, and what lies in it is closed.
"""

from __future__ import annotations

import fcntl
import os
import secrets
import stat
from pathlib import Path

from lakerunner.model.errors import NotFound, UserError
from lakerunner.services.logs import Log
from lakerunner.settings import Settings

ADDRESS = "address"
TOKEN = "token"  # noqa: S105 - the name of its file
CERTIFICATE = "certificate"
POSTGRES = "postgres"
RESTORING = "restoring"  # where `lakerunner restore` builds the lake before it is moved up
_LOCK = "lock"
_CLOSED, _PASSABLE = 0o700, 0o711
_OURS = frozenset(
    {ADDRESS, TOKEN, CERTIFICATE, _LOCK, "store", "cache", "spark", "spark-query", POSTGRES, "demo.json"}
)  # a directory with one of these is a home

log = Log("home")


def make_private(home: Path, *, embedded: bool) -> None:
    """Close the home to others, and what lies in it. `embedded`: the embedded PostgreSQL is in it.

    A directory that holds only other things, or belongs to another user, is left as it is, with a warning: closing it
    could lock others out of their files.
    """
    mode = _PASSABLE if embedded and os.geteuid() == 0 else _CLOSED
    try:
        home.mkdir(parents=True, exist_ok=True, mode=mode)
    except OSError as error:
        reason = f"home {home} cannot be created: {error.strerror}"
        raise UserError(f"{reason}: choose another directory with --home or LAKERUNNER_HOME") from None
    status = home.stat()
    if stat.S_IMODE(status.st_mode) & ~mode & 0o077:
        entries = {entry.name for entry in home.iterdir()}
        if status.st_uid != os.geteuid() or (entries and not entries & _OURS):
            log.warning(
                "home is accessible to other users; its mode was not changed, because it belongs to "
                "another user or holds other files",
                home=str(home),
                mode=f"{stat.S_IMODE(status.st_mode):04o}",
            )
            return
    home.chmod(mode)
    for entry in home.iterdir():
        _close(entry, mode if entry.name == POSTGRES else _CLOSED)


def _close(path: Path, mode: int) -> None:
    """Remove the rights of other users beyond `mode` from a file or directory of ours. Links are not followed."""
    status = path.lstat()
    if stat.S_ISLNK(status.st_mode) or status.st_uid != os.geteuid():
        return
    closed = stat.S_IMODE(status.st_mode) & (mode | 0o700)
    if closed != stat.S_IMODE(status.st_mode):
        path.chmod(closed)


class Home:
    """The lock on a home. It is taken before anything starts, so that an address which a killed process left is gone
    before a command reads it."""

    def __init__(self, directory: Path) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self._address = directory / ADDRESS
        self._lock = os.open(directory / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.pread(self._lock, 20, 0).decode().strip() or "with an unknown id"
            os.close(self._lock)
            raise UserError(
                f"process {holder} already runs with home {directory}: stop it, or choose another --home"
            ) from None
        os.ftruncate(self._lock, 0)
        os.pwrite(self._lock, f"{os.getpid()}\n".encode(), 0)
        self._address.unlink(missing_ok=True)
        self._certificate = directory / CERTIFICATE
        self._certificate.unlink(missing_ok=True)
        self._token = directory / TOKEN
        self.token = f"lrt_{secrets.token_urlsafe(32)}"
        _write_private(self._token, self.token)

    def announce(self, url: str) -> None:
        """Write the address, as the last step of the start: a reader of the file finds everything up."""
        _write_private(self._address, url)

    def show_certificate(self, chain: bytes) -> None:
        """Write the certificate for our commands, before the address is announced and after each renewal."""
        _write_private(self._certificate, chain.decode("ascii", "ignore"))

    def close(self) -> None:
        self._address.unlink(missing_ok=True)
        self._certificate.unlink(missing_ok=True)
        self._token.unlink(missing_ok=True)
        os.close(self._lock)


class NoLake(NotFound):
    """Raised by a command for a lake that does not exist."""

    exit_code = 2

    def __init__(self, home: Path) -> None:
        super().__init__(
            f"no lake found in {home.absolute()}: start one with `lakerunner up`, or name the "
            "home of yours with --home or LAKERUNNER_HOME, or its PostgreSQL server with "
            "DATABASE_URL"
        )


def require_lake(settings: Settings) -> None:
    """Raise NoLake if no server is named and no embedded one was ever started in the home; UserError if the lake is
    only half restored."""
    refuse_half_restored(settings.home)
    if not settings.database_url and not (settings.home / POSTGRES / "data").is_dir():
        raise NoLake(settings.home)


def refuse_half_restored(home: Path) -> None:
    """Raise UserError while a restore into this home runs, or after one was killed: an empty lake must not start
    instead."""
    if (home / RESTORING).exists():
        raise UserError(
            f"the restore into {home.absolute()} is not finished: {RESTORING} is still in it. If "
            "no restore is running, run `lakerunner restore` again with the same --home. To "
            "start an empty lake instead, remove everything in it first"
        )


def holder_of(directory: Path) -> str:
    """Return the id of the process that serves from this home; "" if no process does."""
    try:
        lock = os.open(directory / _LOCK, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return ""
    try:
        fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return os.pread(lock, 20, 0).decode().strip() or "with an unknown id"
    finally:
        os.close(lock)
    return ""


def token_in(directory: Path) -> str | None:
    """Return the token of the process that serves from this home; None if there is none or it cannot be read."""
    try:
        return (directory / TOKEN).read_text().strip() or None
    except OSError:
        return None


def _write_private(path: Path, text: str) -> None:
    """Write a file that only its owner can read, at any moment and whatever file was there before."""
    draft = path.with_suffix(".new")
    draft.unlink(missing_ok=True)
    file = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        os.write(file, f"{text}\n".encode())
    finally:
        os.close(file)
    draft.replace(path)
