"""Under which user the embedded server runs, since PostgreSQL refuses root and wants a user that has a name.

An ordinary user runs it as himself. Root gives it to the owner of the data, and for new data to `postgres` or
`nobody`; no user is made and no folder of anybody's is opened up. Where that user could not reach the data or
the programs (root's home, say), the server keeps the one capability that lets it.
"""

from __future__ import annotations

import os
import pwd
import stat
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from shutil import which

from lakerunner.model.errors import Unavailable, UserError

_STANDARD_USERS = ("postgres", "nobody")
_SYSTEM_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_WAY_OUT = "Run as an ordinary user, or set DATABASE_URL to a PostgreSQL server"


@dataclass(frozen=True)
class Account:
    """`reach` is the command before a command, by which it gets to where its user could not go."""

    uid: int
    gid: int
    reach: tuple[str, ...] = ()

    def run(self, command: Sequence[str], seconds: float) -> subprocess.CompletedProcess[str]:
        """Run it to its end, which is bounded. It gets none of our environment, no terminal and no Ctrl-C of
        ours."""
        changes = self.uid != os.geteuid() and not self.reach
        try:
            return subprocess.run(
                [*self.reach, *command],
                user=self.uid if changes else None,
                group=self.gid if changes else None,
                extra_groups=() if changes else None,
                cwd="/",
                env={"PATH": _SYSTEM_PATH, "LC_ALL": "C"},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                errors="replace",
                start_new_session=True,
                timeout=seconds,
                check=False,
            )
        except subprocess.TimeoutExpired:
            raise Unavailable(f"{Path(command[0]).name} did not end within {seconds:g} s") from None

    def own(self, path: Path) -> None:
        if self.uid != os.geteuid():
            os.chown(path, self.uid, self.gid)


def server_account(data: Path, program: Path) -> Account:
    """Who runs this program on this data folder, which need not be there yet."""
    if os.geteuid() != 0:
        return Account(_entry(os.geteuid()).pw_uid, os.getegid())
    owner = data.stat().st_uid if data.exists() else 0
    entry = _entry(owner) if owner != 0 else _standard_user()
    account = Account(entry.pw_uid, entry.pw_gid)
    if all(_reaches(account, folder) for folder in (*data.parents, *program.parents, program)):
        return account
    setpriv = which("setpriv", path=_SYSTEM_PATH)
    if setpriv is None:
        raise UserError(
            f"as root, the embedded PostgreSQL runs as user {entry.pw_name}, who has no access to "
            f"{data} or {program}. {_WAY_OUT}"
        )
    ids = (f"--reuid={account.uid}", f"--regid={account.gid}", "--clear-groups")
    capability = ("--inh-caps=+dac_override", "--ambient-caps=+dac_override")
    return Account(account.uid, account.gid, (setpriv, *ids, *capability))


def _entry(uid: int) -> pwd.struct_passwd:
    try:
        return pwd.getpwuid(uid)
    except KeyError:
        raise UserError(
            f"user id {uid} has no name in the system's user table, which PostgreSQL needs. " + _WAY_OUT
        ) from None


def _standard_user() -> pwd.struct_passwd:
    for name in _STANDARD_USERS:
        try:
            return pwd.getpwnam(name)
        except KeyError:
            continue
    raise UserError(
        f"PostgreSQL does not run as root, and no user {' or '.join(_STANDARD_USERS)} exists to run it. " + _WAY_OUT
    )


def _reaches(account: Account, path: Path) -> bool:
    """Whether the account may pass this folder, or run this program."""
    status = path.stat()
    if status.st_uid == account.uid:
        return bool(status.st_mode & stat.S_IXUSR)
    if status.st_gid == account.gid:
        return bool(status.st_mode & stat.S_IXGRP)
    return bool(status.st_mode & stat.S_IXOTH)
