"""The checks of settings that look at this machine or know what a part needs: ports, addresses, files.

Comes in: what was read, and the parts that are to run. Goes out: everything that is wrong, at once. What always holds:
nothing is created, and nothing stays open, so that a process that cannot run leaves nothing behind.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from pathlib import Path

import psycopg
from psycopg.conninfo import conninfo_to_dict

from lakerunner.api.addresses import lookups
from lakerunner.api.server import bind, is_loopback, numeric_host, parse_address
from lakerunner.bus.open import check_bus
from lakerunner.model.errors import UserError
from lakerunner.model.failpoint import check_failpoint
from lakerunner.model.given import Problem, WrongSettings
from lakerunner.objects.open import check_store
from lakerunner.pipeline.transcode.mapping_file import read_mapping_file
from lakerunner.services.ground import store_address
from lakerunner.services.home import holder_of
from lakerunner.services.parts import refuse_open_worker, web_origins
from lakerunner.services.queues import check_queue_options
from lakerunner.services.sweep.raw import raw_retention_ns
from lakerunner.settings import Reading, Settings

WORKER = "query-worker"
_ALONE = (
    "is missing: a service that runs alone shares its index with the others. Set DATABASE_URL to a PostgreSQL server, "
    "or run everything with `lakerunner up`"
)
OTLP_PORTS = ("otlp_grpc_port", "otlp_http_port")


@dataclass(frozen=True)
class _Check:
    """`run` raises UserError if the setting cannot be used by one of `parts`; none named: by any part."""

    setting: str
    run: Callable[[Settings], object]
    parts: tuple[str, ...] = ()


_CHECKS = (
    _Check("home", lambda settings: _check_directory(settings.home)),
    _Check("home", lambda settings: _check_unused(settings.home), ("query-api",)),
    _Check("store", lambda settings: check_store(store_address(settings))),
    _Check("database_url", lambda settings: _check_database_url(settings.database_url)),
    _Check("bus", lambda settings: check_bus(settings.bus, settings.bus_topic_prefix)),
    _Check("listen", lambda settings: _check_address(*parse_address(settings.listen))),
    _Check("cors_origins", web_origins),
    _Check("otlp_listen", lambda settings: settings.otlp_listen and numeric_host(settings.otlp_listen), ("pubsub",)),
    _Check("queue_options", check_queue_options, ("pubsub",)),
    _Check("workers", lambda settings: lookups(settings.workers), ("query-api",)),
    _Check("worker_key", lambda settings: refuse_open_worker(settings, _is_local(settings)), (WORKER,)),
    _Check("mapping_file", lambda settings: read_mapping_file(settings.mapping_file), ("ingest",)),
    _Check("raw_retention", lambda settings: raw_retention_ns(settings.raw_retention), ("sweeper",)),
    _Check("failpoint", lambda settings: check_failpoint(settings.failpoint)),
)


def check_settings(reading: Reading, parts: Collection[str]) -> None:
    """WrongSettings with all that is wrong for these parts."""
    problems = (*reading.problems, *_problems(reading, parts))
    if problems:
        raise WrongSettings(problems)


def _problems(reading: Reading, parts: Collection[str]) -> Iterator[Problem]:
    if len(parts) == 1 and WORKER not in parts and not reading.settings.database_url:
        yield reading.problem("database_url", _ALONE)
    for check in _CHECKS:
        if not check.parts or set(check.parts) & set(parts):
            try:
                check.run(reading.settings)
            except UserError as error:
                yield reading.problem(check.setting, f"cannot be used: {error}")
    if "pubsub" in parts and reading.settings.otlp_listen:
        yield from _otlp_problems(reading)


def _otlp_problems(reading: Reading) -> Iterator[Problem]:
    """A usual port that another program has is left to it; one that was chosen must be free."""
    settings = reading.settings
    used = {parse_address(settings.listen)[1]: "listen"}
    for name in OTLP_PORTS:
        port = getattr(settings, name)
        if port and port in used:
            yield reading.problem(name, f"is also the port of {used[port]}: choose another, or 0 for a free one")
        elif name in reading.sources:
            try:
                _check_address(settings.otlp_listen, port)
            except UserError as error:
                yield reading.problem(name, f"cannot be used: {error}")
        used[port] = name


def _check_address(host: str, port: int) -> None:
    bind(host, port).close()


def _is_local(settings: Settings) -> bool:
    return is_loopback(parse_address(settings.listen)[0])


def _check_directory(home: Path) -> None:
    if home.exists() and not home.is_dir():
        raise UserError("it is a file: choose a directory with --home or LAKERUNNER_HOME")


def _check_unused(home: Path) -> None:
    if holder := holder_of(home):
        raise UserError(f"process {holder} runs with this home: stop it, or choose another --home")


def _check_database_url(url: str) -> None:
    try:
        ports = str(conninfo_to_dict(url).get("port", "")).split(",")
    except psycopg.ProgrammingError:  # its message shows a part of the URL, perhaps the password
        ports = ["?"]
    if not all(port.isdecimal() for port in ports if port):
        raise UserError("write postgresql://user:password@host:port/database, special characters as %XX")
