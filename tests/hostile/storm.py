"""A storm: A sends growth queries, header floods, slow clients and Spark queries in a loop while B pushes and queries.

Comes in: a lake with two organizations. Goes out: figures of B's queries idle and under storm, whether each line that B
pushed with an acknowledgement is there once, and the most memory that all processes held, against a bound from the
settings. All on loopback, with a bounded number of connections. A's clients are a process of their own: as threads
beside B's they would hold up B's clock, not the server.
"""

from __future__ import annotations

import socket
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from multiprocessing import get_context
from multiprocessing.connection import Connection
from threading import Event, Lock, Thread

import httpx

from hostile.inputs import statements
from hostile.process_tree import MIB, alive, watched
from hostile.two_tenants import TwoTenants

TARGET_RATIO = 3.0
IDLE_SECONDS = 10.0
B_PAUSE_SECONDS = 0.2
GROWING = 4  # clients of A that send growth queries
FLOODING = 2
SLOW = 20  # connections that send a byte a second
# Seven rows to the power of eleven: it runs until its time is over.
_SPARK = "SELECT count(*) FROM " + ", ".join(f"logs AS t{number}" for number in range(11))
_B_SQL = "SELECT count(*) AS n FROM logs WHERE contains(message, '{}')"


@dataclass
class Figures:
    """Seconds of B's queries, counts by what happened to A's and B's requests, bytes of memory."""

    idle: list[float] = field(default_factory=list)
    under: list[float] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)
    sent: Counter[str] = field(default_factory=Counter)
    pushed: int = 0
    highest: int = 0
    bound: int = 0
    lost: str = ""
    ended: dict[int, str] = field(default_factory=dict)

    @property
    def ratio(self) -> float:
        return p95(self.under) / max(p95(self.idle), 1e-3)

    def missed(self) -> list[str]:
        """Return the targets that were missed."""
        found = []
        if self.ratio > TARGET_RATIO:
            found.append(f"p95 of B is {self.ratio:.1f}x of idle, more than {TARGET_RATIO:g}x")
        if self.failed:
            found.append(f"{len(self.failed)} requests of B failed, the first: {self.failed[0]}")
        if self.lost:
            found.append(self.lost)
        if self.highest > self.bound:
            found.append(f"{self.highest // MIB} MiB held, more than {self.bound // MIB}")
        if self.ended:
            found.append(f"processes ended: {self.ended}")
        return found

    def lines(self) -> list[str]:
        """Return the figures for people."""
        idle, under = p95(self.idle) * 1000, p95(self.under) * 1000
        return [
            f"B idle:        p95 {idle:.0f} ms of {len(self.idle)} queries",
            f"B under storm: p95 {under:.0f} ms of {len(self.under)} queries, {len(self.failed)} failed requests",
            f"ratio:         {self.ratio:.2f} (target: at most {TARGET_RATIO:g})",
            f"B pushed:      {self.pushed} lines, {self.lost or 'each there once'}",
            f"memory:        {self.highest // MIB} MiB at most (bound: {self.bound // MIB} MiB)",
            "A sent:        " + ", ".join(f"{count} {what}" for what, count in sorted(self.sent.items())),
        ]


def p95(seconds: list[float]) -> float:
    return sorted(seconds)[min(len(seconds) - 1, int(len(seconds) * 0.95))] if seconds else 0.0


def run_storm(lake: TwoTenants, seconds: float, say: Callable[[str], None]) -> Figures:
    """Measure B idle, then under storm for `seconds`; `say` gets the bound before the storm begins."""
    figures = Figures(bound=lake.memory_bound(spark=True))
    say(f"memory bound: {figures.bound // MIB} MiB, {lake.idle_bytes // MIB} MiB held idle")
    _work_as_b(lake, min(IDLE_SECONDS, seconds), figures, figures.idle)
    with watched(lake.tree) as memory, _attackers(lake, figures.sent):
        _work_as_b(lake, seconds, figures, figures.under)
    figures.highest, figures.pushed = memory.highest, len(lake.pushed)
    figures.ended = {pid: what for pid, what in lake.lasting.items() if pid not in alive(lake.lasting)}
    try:
        lake.all_of_b_is_there()
    except (AssertionError, httpx.HTTPError) as error:
        figures.lost = f"B's lines are not all there once: {str(error)[:200]}"
    return figures


@contextmanager
def _attackers(lake: TwoTenants, sent: Counter[str]) -> Iterator[None]:
    """Attack until the block ends; `sent` then counts what A sent and how it was answered."""
    ours, theirs = get_context("fork").Pipe()
    process = get_context("fork").Process(target=_attack, args=(lake, theirs), daemon=True)
    process.start()
    try:
        yield
        ours.send("end")
        sent.update(ours.recv() if ours.poll(90) else {"attackers that did not end": 1})
    finally:
        process.kill()
        process.join()


def _attack(lake: TwoTenants, parent: Connection) -> None:
    """Send all that A sends until the parent ends it, then report the counts."""
    lake.__dict__.pop("http", None)  # the parent's client is of the parent's threads
    ended, lock, sent = Event(), Lock(), Counter[str]()

    def count(what: str) -> None:
        with lock:
            sent[what] += 1

    attackers = [Thread(target=_grow, args=(lake, number, ended, count), daemon=True) for number in range(GROWING)]
    attackers += [Thread(target=_flood, args=(lake, ended, count), daemon=True) for _ in range(FLOODING)]
    attackers += [Thread(target=_crawl, args=(lake, ended, count), daemon=True)]
    attackers += [Thread(target=_ask_spark, args=(lake, ended, count), daemon=True)]
    for attacker in attackers:
        attacker.start()
    parent.recv()
    ended.set()
    for attacker in attackers:
        attacker.join(60)
    parent.send(sent)


def _work_as_b(lake: TwoTenants, seconds: float, figures: Figures, taken: list[float]) -> None:
    """Push a line and ask a question in turn, and note how long the question took."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        try:
            failed = lake.push_as_b()
            started = time.monotonic()
            # Another text each time: an answer that is kept would measure nothing.
            answer = lake.ask(lake.b, _B_SQL.format(f"{lake.b.word('msg')} said {len(taken) % lake.b.rows}"))
            taken.append(time.monotonic() - started)
            if answer.status_code != 200:
                failed = f"query: {answer.status_code} {answer.text[:200]}"
        except httpx.HTTPError as error:
            failed = repr(error)
        if failed:
            figures.failed.append(failed)
        time.sleep(B_PAUSE_SECONDS)


def _grow(lake: TwoTenants, number: int, ended: Event, count: Callable[[str], None]) -> None:
    growing = statements()["growth"][number::GROWING]
    while not ended.is_set():
        for statement in growing:
            if ended.is_set():
                return
            body = statement.request("duckdb", lake.facts)
            try:
                answer = lake.http.post("/api/v1/sql", json=body, headers=lake.headers(lake.a, "reader"))
                count(f"growth queries answered {answer.status_code}")
            except httpx.HTTPError as error:
                count(f"growth queries with {type(error).__name__}")
                ended.wait(0.2)


def _flood(lake: TwoTenants, ended: Event, count: Callable[[str], None]) -> None:
    head = b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\n" + b"X-Flood: " + b"f" * 65_536 + b"\r\n"
    while not ended.is_set():
        with (
            suppress(OSError),
            socket.create_connection(("127.0.0.1", int(lake.facts["port"])), timeout=5) as connection,
        ):
            for _ in range(64):
                connection.sendall(head)
        count("header floods")
        ended.wait(0.05)


def _crawl(lake: TwoTenants, ended: Event, count: Callable[[str], None]) -> None:
    """Hold connections open by a byte a second, and open again those that the server closes."""
    held: list[socket.socket] = []
    while not ended.is_set():
        for connection in tuple(held):
            try:
                connection.sendall(b"x")
            except OSError:
                connection.close()
                held.remove(connection)
        while len(held) < SLOW:
            try:
                held.append(socket.create_connection(("127.0.0.1", int(lake.facts["port"])), timeout=5))
                held[-1].sendall(b"POST /v1/logs HTTP/1.1\r\nHost: 127.0.0.1\r\nX-Slow: ")
                count("slow connections")
            except OSError:
                break
        ended.wait(1)
    for connection in held:
        connection.close()


def _ask_spark(lake: TwoTenants, ended: Event, count: Callable[[str], None]) -> None:
    while not ended.is_set():
        try:
            answer = lake.ask(lake.a, _SPARK, engine="spark")
            count(f"Spark queries answered {answer.status_code}")
        except httpx.HTTPError as error:
            count(f"Spark queries with {type(error).__name__}")
        ended.wait(0.2)
