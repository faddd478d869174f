"""PostgreSQL servers for tests: the embedded one, and the system's own where it is installed."""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from urllib.parse import quote, urlsplit, urlunsplit
from uuid import uuid4

import psycopg
import pytest
from psycopg import sql

from lakerunner.index.embedded import EmbeddedPostgres
from lakerunner.index.index import Index
from lakerunner.index.migrate import load_migrations
from lakerunner.index.programs import server_account
from lakerunner.model.organization import Organization
from servers.ports import free_port

_PASSWORD = "p@ss/w%rd"  # signs that a URL must encode
_SECONDS = 120


# By the server's URL: databases of ended tests, migrated and without rows.
_idle: dict[str, list[str]] = {}

_EMPTY = Path(__file__).with_name("empty_index.sql").read_bytes()


@contextmanager
def embedded_postgres(directory: Path) -> Iterator[str]:
    """The URL of the server that `lakerunner up` starts; it does not wait for the disk, as no test cuts its power."""
    with EmbeddedPostgres(directory) as url:
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute("ALTER SYSTEM SET fsync = off")
            connection.execute("SELECT pg_reload_conf()")
        yield url


@contextmanager
def debian_postgres(directory: Path) -> Iterator[str]:
    """The URL of a server of the system's own PostgreSQL packages; skips the test where there are none."""
    programs = _system_programs()
    if programs is None:
        pytest.skip("no PostgreSQL server is installed: neither under /usr/lib/postgresql nor on the PATH")
    data, password, log = directory / "data", directory / "password", directory / "data" / "log"
    directory.mkdir(parents=True, exist_ok=True)
    account = server_account(data, programs / "postgres")
    data.mkdir(mode=0o700)
    password.write_text(_PASSWORD)
    account.own(data)
    account.own(password)

    def run(program: str, *arguments: str) -> None:
        result = account.run([str(programs / program), "-D", str(data), *arguments], _SECONDS)
        assert result.returncode == 0, f"{program}: {result.stdout} {log.read_text() if log.exists() else ''}"

    run("initdb", "-U", "tester", "-A", "scram-sha-256", f"--pwfile={password}", "-E", "UTF8", "--locale=C.UTF-8", "-N")
    port = free_port()  # now, and not before the seconds that initdb takes
    options = f"-c listen_addresses=127.0.0.1 -c unix_socket_directories= -c port={port} -c fsync=off"
    run("pg_ctl", "start", "-w", "-l", str(log), "-o", options)
    try:
        yield f"postgresql://tester:{quote(_PASSWORD, safe='')}@127.0.0.1:{port}/postgres"
    finally:
        run("pg_ctl", "stop", "-w", "-m", "immediate")


@contextmanager
def frozen(data: Path) -> Iterator[None]:
    """The server on this data is stopped by a signal, with all of its processes: its connections stay open, new ones
    are accepted by the kernel, and nothing is ever answered."""
    postmaster = int((data / "postmaster.pid").read_text().split("\n", 1)[0])
    os.kill(postmaster, signal.SIGSTOP)  # first, so that no child is missed
    stopped = [postmaster]
    try:
        for child in _children(postmaster):
            os.kill(child, signal.SIGSTOP)
            stopped.append(child)
        yield
    finally:
        for pid in reversed(stopped):
            os.kill(pid, signal.SIGCONT)


def _children(parent: int) -> list[int]:
    stats = (path.read_text() for path in Path("/proc").glob("[0-9]*/stat") if path.exists())
    fields = [(int(stat.split(" ", 1)[0]), int(stat.rpartition(")")[2].split()[1])) for stat in stats]
    return [pid for pid, of in fields if of == parent]


def fresh_database(url: str) -> str:
    """The URL of a new, empty database on this server."""
    name = f"test_{uuid4().hex}"
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name)))
    return urlunsplit(urlsplit(url)._replace(path=f"/{name}"))


def drop_database(url: str) -> None:
    """Of a fresh database: whoever is still connected to it is cut off."""
    parts = urlsplit(url)
    with psycopg.connect(urlunsplit(parts._replace(path="/postgres")), autocommit=True) as connection:
        connection.execute(sql.SQL("DROP DATABASE {} WITH (FORCE)").format(sql.Identifier(parts.path[1:])))


@contextmanager
def index_database(url: str) -> Iterator[str]:
    """Give the URL of a database on this server that holds an index without rows.

    The next test gets the same one, emptied: that takes a tenth of the work of creating, migrating and dropping one.
    It is dropped if its record of migrations was changed. A test that changes tables takes a `fresh_database`.
    """
    idle = _idle.setdefault(url, [])
    database = idle.pop() if idle else _migrated(fresh_database(url))
    yield database
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute(_EMPTY)
        migrations = connection.execute("SELECT name, checksum FROM lrdb.migrations ORDER BY name").fetchall()
    if migrations == [(one.name, one.checksum) for one in load_migrations()]:
        idle.append(database)
    else:
        drop_database(database)


@contextmanager
def empty_index(url: str, *organizations: Organization, connections: int = 10) -> Iterator[Index]:
    """Open an index on this server that has these organizations and nothing else."""
    with index_database(url) as database, closing(Index.open(database, connections=connections)) as index:
        for organization in organizations:
            index.organizations.create(organization)
        yield index


def _migrated(database: str) -> str:
    with closing(Index.open(database)) as index:
        index.migrate()
    return database


def _system_programs() -> Path | None:
    """The newest version's folder of programs."""
    versions = [path.parent for path in Path("/usr/lib/postgresql").glob("*/bin/initdb")]
    if versions:
        return max(versions, key=lambda folder: float(folder.parent.name))
    found = shutil.which("initdb")
    if found and (Path(found).resolve().parent / "postgres").exists():
        return Path(found).resolve().parent
    return None
