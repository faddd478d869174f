"""VictoriaLogs and Loki beside the lake, with the same lines: programs `victoria-logs` and `loki` of `make peers`.

Comes in: a directory, and requests of OTLP as the lake gets them. Goes out: peers that hold all of their lines; one
that lost some is named and left out. A peer is loaded once, stopped and started again: it answers from its files, as
after a restart. What it has loaded stays in its directory, where a file `made` says that it is complete.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import httpx

from _lake import HOURS, Batches
from _log_answers import Answer, checked, difference, get, logsql_answer, loki_answer
from _log_cases import LINES_BY_HOUR, Case
from servers.lake import wait_until
from servers.loki import flush_loki, running_loki
from servers.peers import peer_program, running_peer
from servers.ports import free_port

_SECONDS = 600


@dataclass(frozen=True)
class Kind:
    """A program. `run` starts it in a directory and yields its URL; `settle` returns when all lines that it got are in
    its files, as it keeps them."""

    name: str
    run: Callable[[Path], AbstractContextManager[str]]
    door: str
    settle: Callable[[httpx.Client], None]
    request: Callable[[Case], tuple[str, dict[str, str]]]
    read: Callable[[Case, httpx.Response], Answer | None]


@dataclass(frozen=True)
class Peer:
    kind: Kind
    client: httpx.Client

    @property
    def name(self) -> str:
        return self.kind.name

    def ask(self, case: Case) -> httpx.Response:
        return get(self.client, self.kind.request(case))

    def read(self, case: Case, response: httpx.Response) -> Answer | None:
        return self.kind.read(case, response)


@contextmanager
def log_peers(directory: Path, rows: int, batches: Batches, hours: Answer) -> Iterator[tuple[list[Peer], int]]:
    """Start those that are there, loaded. `hours` are the lines of each hour that every one must have; yield also how
    many have not."""
    peers: list[Peer] = []
    faults = 0
    with ExitStack() as stack:
        for kind in _KINDS:
            if not peer_program(kind.name).exists():
                print(f"{kind.name} is not there: `make peers` builds it")
                continue
            own = directory / kind.name
            try:
                if not (own / "made").exists():
                    _load(kind, own, rows, batches)
                peers.append(stack.enter_context(_complete(kind, own, hours)))
            except (ValueError, AssertionError, httpx.HTTPError) as error:
                faults += 1
                print(f"{kind.name} IS NOT MEASURED: {type(error).__name__}: {error}", flush=True)
        yield peers, faults


@contextmanager
def _serving(kind: Kind, directory: Path) -> Iterator[httpx.Client]:
    with kind.run(directory) as url, httpx.Client(base_url=url, timeout=_SECONDS) as client:
        yield client


def _load(kind: Kind, directory: Path, rows: int, batches: Batches) -> None:
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir(parents=True)
    with _serving(kind, directory) as client:
        began, sent = time.perf_counter(), 0
        for hour in range(HOURS):
            of_hour = rows // HOURS + (hour < rows % HOURS)
            for data in batches(hour, of_hour):
                checked(client.post(kind.door, content=data, headers={"content-type": "application/x-protobuf"}))
            sent += of_hour
            print(f"{kind.name}: hour {hour + 1}, {sent} lines, {time.perf_counter() - began:.0f} s", flush=True)
        kind.settle(client)
    (directory / "made").touch()


@contextmanager
def _complete(kind: Kind, directory: Path, hours: Answer) -> Iterator[Peer]:
    with _serving(kind, directory) as client:
        peer = Peer(kind, client)
        found = peer.read(LINES_BY_HOUR, peer.ask(LINES_BY_HOUR))
        if lost := difference(found, hours):
            (directory / "made").unlink()
            raise ValueError(f"its lines of an hour are not those of the lake: {lost}")
        size = sum(file.stat().st_size for file in (directory / "data").rglob("*") if file.is_file())
        print(f"{kind.name} has all lines: {size / hours.total():.1f} B a line", flush=True)
        yield peer


@contextmanager
def _victoria_logs(directory: Path) -> Iterator[str]:
    http = free_port()
    url = f"http://127.0.0.1:{http}"
    arguments = [
        f"-storageDataPath={directory / 'data'}",
        f"-httpListenAddr=127.0.0.1:{http}",
        "-retentionPeriod=100y",
        f"-search.maxQueryDuration={_SECONDS}s",
    ]
    with running_peer("victoria-logs", arguments, url + "/health", directory / "log"):
        yield url


def _merged(client: httpx.Client) -> None:
    checked(client.get("/internal/force_flush"))

    def quiet() -> bool:
        metrics = checked(client.get("/metrics")).text.splitlines()
        return all(line.endswith(" 0") for line in metrics if line.startswith("vl_active_merges{"))

    wait_until(quiet, "no merge in VictoriaLogs", _SECONDS)


_KINDS = (
    Kind(
        "victoria-logs",
        _victoria_logs,
        "/insert/opentelemetry/v1/logs",
        _merged,
        Case.logsql_request,
        logsql_answer,
    ),
    Kind("loki", partial(running_loki, shards=True), "/otlp/v1/logs", flush_loki, Case.loki_request, loki_answer),
)
