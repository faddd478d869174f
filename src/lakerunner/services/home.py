"""The home of a lake: one process at a time serves from it. While it does, `HOME/address` names its URL, and with TLS
`HOME/certificate` holds the certificate that it presents: our commands trust that one there, and no other.

`HOME/token` holds a secret that is as good as a key of the default organization with every role: who can read the
directory may administer the lake, and a web page, which can reach the address, cannot read it.

It holds telemetry, and nobody but its owner may read it: `make_private` sees to the directory, the umask of the command
line (cli.py) to everything that is made in it. Where root runs the embedded PostgreSQL, the server is another user's
(index/account.py) and has to pass through: then HOME may be passed (0711), and what lies in it is closed.
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
RESTORING = "restoring"  # where `lakerunner restore` makes the lake before it moves up
_LOCK = "lock"
_CLOSED, _PASSABLE = 0o700, 0o711
_OURS = frozenset(
    {ADDRESS, TOKEN, CERTIFICATE, _LOCK, "store", "cache", "spark", "spark-query", POSTGRES, "demo.json"}
)  # by which a home is known

log = Log("home")


def make_private(home: Path, *, embedded: bool) -> None:
    """Close the home to others, and what lies in it. `embedded`: the embedded PostgreSQL is in it.

    A directory that holds other things and nothing of ours, and one that is another user's, is left as it is, with a
    warning: to close it could lock others out of what is theirs.
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
    """Take the rights of others, beyond those of `mode`, from a file or directory of ours; links are not followed."""
    status = path.lstat()
    if stat.S_ISLNK(status.st_mode) or status.st_uid != os.geteuid():
        return
    closed = stat.S_IMODE(status.st_mode) & (mode | 0o700)
    if closed != stat.S_IMODE(status.st_mode):
        path.chmod(closed)


class Home:
    """Taken before anything starts, so that an address left by a killed process is gone before anyone reads it."""

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
        """Last of all, so that whoever finds the file finds everything up."""
        _write_private(self._address, url)

    def show_certificate(self, chain: bytes) -> None:
        """Before the address is announced, and again when it is renewed."""
        _write_private(self._certificate, chain.decode("ascii", "ignore"))

    def close(self) -> None:
        self._address.unlink(missing_ok=True)
        self._certificate.unlink(missing_ok=True)
        self._token.unlink(missing_ok=True)
        os.close(self._lock)


class NoLake(NotFound):
    """A command looks at a lake that is not there."""

    exit_code = 2

    def __init__(self, home: Path) -> None:
        super().__init__(
            f"no lake found in {home.absolute()}: start one with `lakerunner up`, or name the "
            "home of yours with --home or LAKERUNNER_HOME, or its PostgreSQL server with "
            "DATABASE_URL"
        )


def require_lake(settings: Settings) -> None:
    """NoLake if neither a server is named nor an embedded one was ever started in the home; UserError if it is only
    half restored."""
    refuse_half_restored(settings.home)
    if not settings.database_url and not (settings.home / POSTGRES / "data").is_dir():
        raise NoLake(settings.home)


def refuse_half_restored(home: Path) -> None:
    """UserError while a restore into this home runs, or after one was killed: an empty lake must not start instead."""
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
    """Write a file that only its owner can read, at any moment and whatever stood there before."""
    draft = path.with_suffix(".new")
    draft.unlink(missing_ok=True)
    file = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        os.write(file, f"{text}\n".encode())
    finally:
        os.close(file)
    draft.replace(path)
