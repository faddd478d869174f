"""VictoriaLogs and Loki beside the lake, with the same lines: programs `victoria-logs` and `loki` of `make peers`.

Both take the lake's requests of OTLP as they are. Loki answers the same requests as the lake; VictoriaLogs has a
language of its own, and answers those that `_LOGSQL` has.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx

from _lake import HOURS, Batches
from servers.loki import running_loki
from servers.peers import running_peer
from servers.ports import free_port

_PEERS = Path(os.environ.get("LAKERUNNER_PEERS", "~/.cache/lakerunner-peers")).expanduser() / "bin"
# The words of LogsQL for the cases of logql.py, by the start of their names.
_LOGSQL = {
    "needle: absent word": "zqxjkvbwp | limit 100",
    "service + text, count": 'service.name:="checkout" "pool exhausted" | stats count() n',
    "text in all services, count": "declined | stats count() n",
    "level per minute, 24 h": "* | stats by (_time:1m, severity) count() n",
    "last 100 lines of a service": 'service.name:="payment" | sort by (_time desc) | limit 100',
    "Q3:": "order Osaka | stats count() n",
    "Q4:": "(declined or refused) | stats count() n",
    "Q7:": "order | stats by (service.name) count() n",
}


@dataclass(frozen=True)
class Peer:
    name: str
    client: httpx.Client

    def ask(self, case: str, path: str, parameters: Mapping[str, str]) -> None:
        """Send a request as the lake gets it. ValueError if this peer has no such question, or refuses it."""
        target, sent = f"/loki/api/v1/{path}", dict(parameters)
        if self.name == "victoria-logs":
            query = next((text for name, text in _LOGSQL.items() if case.startswith(name)), None)
            if query is None:
                raise ValueError("not asked")
            target, sent = "/select/logsql/query", {"query": query}
        response = self.client.post(target, data=sent)
        if not response.is_success:
            raise ValueError(f"status {response.status_code}: {response.text[:200]}")


@contextmanager
def log_peers(directory: Path, rows: int, batches: Batches) -> Iterator[list[Peer]]:
    """Start and load those that are there."""
    with ExitStack() as stack:
        yield [
            stack.enter_context(_loaded(name, directory / name, rows, batches))
            for name in ("victoria-logs", "loki")
            if _is_there(name)
        ]


def _is_there(name: str) -> bool:
    there = (_PEERS / name).exists()
    if not there:
        print(f"{name} is not there ({_PEERS})")
    return there


@contextmanager
def _loaded(name: str, directory: Path, rows: int, batches: Batches) -> Iterator[Peer]:
    directory.mkdir()
    running, door = (_loki, "/otlp/v1/logs") if name == "loki" else (_victoria_logs, "/insert/opentelemetry/v1/logs")
    with running(directory) as url, httpx.Client(base_url=url, timeout=300) as client:
        for hour in range(HOURS):
            for data in batches(hour, rows // HOURS + (hour < rows % HOURS)):
                sent = client.post(door, content=data, headers={"content-type": "application/x-protobuf"})
                if not sent.is_success:
                    print(f"{name} refused lines: {sent.status_code} {sent.text[:200]}")
        yield Peer(name, client)


def _loki(directory: Path) -> AbstractContextManager[str]:
    return running_loki(directory, shards=True)


@contextmanager
def _victoria_logs(directory: Path) -> Iterator[str]:
    http = free_port()
    url = f"http://127.0.0.1:{http}"
    data = f"-storageDataPath={directory / 'data'}"
    arguments = [data, f"-httpListenAddr=127.0.0.1:{http}", "-retentionPeriod=100y"]
    with running_peer("victoria-logs", arguments, url + "/health", directory / "log"):
        yield url
