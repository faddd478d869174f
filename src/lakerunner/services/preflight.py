"""Check settings against this machine and the needs of each part: ports, addresses, files.

Comes in: the settings and the parts that are to run. Goes out: everything that is wrong, in one error. What always
holds: nothing is created and nothing stays open, so a process that cannot run leaves nothing behind.
"""

from __future__ import annotations

import os
import resource
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from pathlib import Path

import psycopg
from psycopg.conninfo import conninfo_to_dict

from lakerunner.api.server import AddressInUse, bind, is_loopback, numeric_host, parse_address
from lakerunner.api.tls import WrongKey, trusting
from lakerunner.api.workers.addresses import lookups
from lakerunner.bus.open import check_bus
from lakerunner.model.errors import UserError
from lakerunner.model.failpoint import check_failpoint
from lakerunner.model.setting_value import WrongSettings
from lakerunner.objects.open import check_store
from lakerunner.pipeline.transcode.columns import read_mapping_file
from lakerunner.services.ground import store_address
from lakerunner.services.home import holder_of
from lakerunner.services.parts import refuse_open_worker, web_origins
from lakerunner.services.queues import check_queue_options
from lakerunner.services.renewal import load_certificate
from lakerunner.services.sweep.other_chores import raw_retention_ns
from lakerunner.settings import LoadedSettings, Settings

WORKER = "query-worker"
_ALONE = (
    "is missing: a service that runs alone shares its index with the others. Set DATABASE_URL to a PostgreSQL server, "
    "or run everything with `lakerunner up`"
)
_OPEN_FILES = 512
OTLP_PORTS = ("otlp_grpc_port", "otlp_http_port")


@dataclass(frozen=True)
class _Check:
    """`run` raises UserError if one of `parts` cannot use the setting; no parts named means every part."""

    setting: str
    run: Callable[[Settings], object]
    parts: tuple[str, ...] = ()


_CHECKS = (
    _Check("home", lambda settings: _check_directory(settings.home)),
    _Check("home", lambda settings: _check_unused(settings.home), ("query-api",)),
    _Check("store", lambda settings: check_store(store_address(settings))),
    _Check("database_url", lambda settings: _check_database_url(settings.database_url)),
    _Check("bus", lambda settings: check_bus(settings.bus, settings.bus_topic_prefix)),
    _Check("listen", lambda settings: _check_address(*parse_address(settings.listen), " with --listen")),
    _Check("tls_ca", lambda settings: settings.tls_ca and trusting(settings.tls_ca), ("query-api",)),
    _Check("cors_origins", web_origins),
    _Check("otlp_listen", lambda settings: settings.otlp_listen and numeric_host(settings.otlp_listen), ("pubsub",)),
    _Check("queue_options", check_queue_options, ("pubsub",)),
    _Check("workers", lambda settings: lookups(settings.workers), ("query-api",)),
    _Check("worker_key", lambda settings: refuse_open_worker(settings, _is_local(settings)), (WORKER,)),
    _Check("mapping_file", lambda settings: read_mapping_file(settings.mapping_file), ("ingest",)),
    _Check("raw_retention", lambda settings: raw_retention_ns(settings.raw_retention), ("sweeper",)),
    _Check("failpoint", lambda settings: check_failpoint(settings.failpoint)),
)


def check_settings(reading: LoadedSettings, parts: Collection[str]) -> None:
    """Raise WrongSettings with everything that is wrong for these parts.

    If the home is in use, ports that are in use are not listed: the same process has them.
    """
    _check_open_files()
    found = (*_problems(reading, parts),)
    if any(isinstance(error, _HomeInUse) for _, error in found):
        found = tuple((name, error) for name, error in found if not isinstance(error, AddressInUse))
    problems = (*reading.problems, *(reading.problem(name, _text(error)) for name, error in found))
    if problems:
        raise WrongSettings(problems)


class _HomeInUse(UserError):
    """Raised if another process serves from this home."""


class _Unusable(UserError):
    """Raised for a value that is wrong on any machine."""


def _text(error: UserError) -> str:
    return str(error) if isinstance(error, _Unusable) else f"cannot be used: {error}"


def _problems(reading: LoadedSettings, parts: Collection[str]) -> Iterator[tuple[str, UserError]]:
    """Yield each setting that is wrong, and why."""
    if len(parts) == 1 and WORKER not in parts and not reading.settings.database_url:
        yield "database_url", _Unusable(_ALONE)
    for check in _CHECKS:
        if not check.parts or set(check.parts) & set(parts):
            try:
                check.run(reading.settings)
            except UserError as error:
                yield check.setting, error
    yield from _tls_problems(reading.settings)
    if "pubsub" in parts and reading.settings.otlp_listen:
        yield from _otlp_problems(reading)


def _tls_problems(settings: Settings) -> Iterator[tuple[str, UserError]]:
    try:
        load_certificate(settings)
    except UserError as error:
        yield "tls_key" if isinstance(error, WrongKey) else "tls_certificate", error


def _otlp_problems(reading: LoadedSettings) -> Iterator[tuple[str, UserError]]:
    """Yield chosen OTLP ports that are not free. A default port that another program has is left to it."""
    settings = reading.settings
    used = {parse_address(settings.listen)[1]: "listen"}
    for name in OTLP_PORTS:
        port = getattr(settings, name)
        if port and port in used:
            yield name, _Unusable(f"is the port of {used[port]} too: choose another, or 0 for a free one")
        elif name in reading.sources:
            try:
                _check_address(settings.otlp_listen, port, ", 0 for a free one")
            except UserError as error:
                yield name, error
        used[port] = name


def _check_address(host: str, port: int, how: str) -> None:
    try:
        bind(host, port).close()
    except AddressInUse as error:
        raise AddressInUse(f"{error}: stop it, or choose another port{how}") from error
    except UserError as error:
        raise UserError(f"{error}: choose another address{how}") from error


def _is_local(settings: Settings) -> bool:
    return is_loopback(parse_address(settings.listen)[0])


def _check_open_files() -> None:
    """Raise UserError if too few files may be open. Java opens all its jars at once, and its own error would not name
    the cause."""
    allowed = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    if allowed != resource.RLIM_INFINITY and allowed < _OPEN_FILES:
        raise UserError(
            f"a process may open {allowed} files here, {_OPEN_FILES} are needed: run `ulimit -n 4096` before"
        )


def _check_directory(home: Path) -> None:
    """Raise UserError unless this user can write to the directory, or to its nearest existing parent."""
    remedy = "choose a directory that you can write to with --home or LAKERUNNER_HOME"
    place = next(one for one in (home.absolute(), *home.absolute().parents) if os.path.lexists(one))
    if not place.is_dir():
        what = "it is a file" if place == home.absolute() else f"{place} is a file"
        raise UserError(f"{what}: {remedy}")
    if not os.access(place, os.W_OK | os.X_OK):
        raise UserError(f"{place} cannot be written to by this user, or is read-only: {remedy}")


def _check_unused(home: Path) -> None:
    if holder := holder_of(home):
        raise _HomeInUse(f"process {holder} runs with this home: stop it, or choose another with --home")


def _check_database_url(url: str) -> None:
    try:
        ports = str(conninfo_to_dict(url).get("port", "")).split(",")
    except psycopg.ProgrammingError:  # its message would show part of the URL, perhaps the password
        ports = ["?"]
    if not all(port.isdecimal() for port in ports if port):
        raise UserError("write postgresql://user:password@host:port/database, special characters as %XX")
