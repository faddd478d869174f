"""What a tail adds to the latency of ingest: lines pushed one after the other into a running lake (`lakerunner up`),
each timed from its push until `query_range` answers with it, and until each of two clients that follow it over a
WebSocket has it. Three parts:

    all read     a third client follows the lines with their filler (--filler MiB for each line), and reads all of it
    one stopped  it reads its first frames and then nothing: its TCP window fills, and the filler after that is dropped
    late lines   lines of five minutes before those that were shown, in segments of their own

Latency of ingest is that of the same lines in the same part. Memory is the resident size (VmRSS) of the process that
serves the API, which is all of the lake but Java, PostgreSQL, sandboxes and Spark's workers. What it costs to hold a
client that has stopped is the difference between the highest sizes of the two parts: both have the same load, a
multiple of the bound, after more of it has warmed the allocator.

Exit code 1 if the p95 of shown is above the p95 of queryable and a second, if a client that reads misses a line or has
one twice, if the client that stopped lost nothing (its window did not fill), or if it costs more than MEMORY_MIB.

    python bench/tail.py [--lines 60] [--every 0.5] [--filler 2]
"""

from __future__ import annotations

import argparse
import socket
import statistics
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from urllib.parse import urlencode, urlsplit

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

import httpx
import orjson
import psutil
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import ClientConnection, connect

from hostile.process_tree import MIB
from servers.lake import Lake, lake

LINES, EVERYTHING = '{app="marked"}', '{app=~"marked|filler"}'
TARGET_SECONDS = 1.0  # between queryable and shown
MEMORY_MIB = 64
GIVE_UP_SECONDS, QUIET_SECONDS = 120.0, 5.0
WARM_LINES, LATE_LINES = 120, 20
LATE_NS = 300 * 10**9
FILLER_BYTES = 16 << 10  # of one line
FIRST_FRAMES = 2  # of the lines that are there
RECEIVE_BYTES = 4096  # buffer of the socket that fills
READERS = 2


@dataclass
class Sightings:
    """Lines as they came: the moment of the first time, and the number of times."""

    first: dict[str, float] = field(default_factory=dict)
    counts: Counter[str] = field(default_factory=Counter)

    def add(self, streams: Sequence[dict[str, Any]], moment: float) -> None:
        for text in (text for stream in streams for _, text, *_ in stream["values"]):
            self.first.setdefault(text, moment)
            self.counts[text] += 1


def opened_tail(running: Lake, query: str, receive_bytes: int = 0) -> AbstractContextManager[ClientConnection]:
    """Connect a tail; with `receive_bytes` its buffers are small."""
    address = urlsplit(running.url)
    wire = socket.socket()
    if receive_bytes:
        wire.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_bytes)
    wire.connect((address.hostname, address.port))
    asked = urlencode({"query": query, "start": str(time.time_ns() - 2 * LATE_NS)})
    url = f"ws://{address.netloc}/loki/api/v1/tail?{asked}"
    held = 1 if receive_bytes else 16  # frames
    return connect(url, sock=wire, compression=None, max_size=None, max_queue=held, close_timeout=1)


@contextmanager
def following(running: Lake, query: str) -> Iterator[Sightings]:
    """Read all that comes in a thread, until the block ends."""
    seen = Sightings()

    def read() -> None:
        with suppress(ConnectionClosed):
            while True:
                frame = client.recv()
                seen.add(orjson.loads(frame)["streams"], time.monotonic())

    with opened_tail(running, query) as client:
        thread = threading.Thread(target=read)
        thread.start()
        try:
            yield seen
        finally:
            client.close()
            thread.join()


@contextmanager
def querying(running: Lake) -> Iterator[Sightings]:
    """Ask query_range for the lines again and again, until the block ends."""
    seen, ended = Sightings(), threading.Event()
    asked = {"query": LINES, "start": str(time.time_ns() - 2 * LATE_NS), "limit": "5000"}

    def ask() -> None:
        with httpx.Client(timeout=60) as client:
            while not ended.wait(0.05):
                answer = client.get(f"{running.url}/loki/api/v1/query_range", params=asked).raise_for_status()
                seen.add(answer.json()["data"]["result"], time.monotonic())

    thread = threading.Thread(target=ask)
    thread.start()
    try:
        yield seen
    finally:
        ended.set()
        thread.join()


def read_rest(client: ClientConnection) -> tuple[int, int]:
    """Read on until nothing comes; return how many lines came, and how many the server named as dropped."""
    came = named = 0
    with suppress(ConnectionClosed, TimeoutError):
        while True:
            frame = orjson.loads(client.recv(QUIET_SECONDS))
            came += sum(len(stream["values"]) for stream in frame["streams"])
            named += len(frame.get("dropped_entries", ()))
    return came, named


@contextmanager
def highest_memory(running: Lake) -> Iterator[list[int]]:
    """Sample the process of the API; the list has its highest size when the block ends."""
    process, ended, sizes = psutil.Process(running.process.popen.pid), threading.Event(), [0]

    def sample() -> None:
        while not ended.wait(0.1):
            sizes[0] = max(sizes[0], process.memory_info().rss)

    thread = threading.Thread(target=sample)
    thread.start()
    try:
        yield sizes
    finally:
        ended.set()
        thread.join()


@dataclass(frozen=True)
class Load:
    """Lines that are pushed one after the other, one each `every` seconds with `filler` MiB; their time is `late_ns`
    ago."""

    name: str
    lines: int
    every: float = 0.0
    filler: float = 0.0
    late_ns: int = 0

    @property
    def fillers(self) -> int:
        """Return the lines of filler of each line."""
        return int(self.filler * MIB / FILLER_BYTES)


@dataclass
class Part:
    """The lines of one part: when each was pushed, when it was queryable, and what each reading client got."""

    load: Load
    pushed: dict[str, float]
    queryable: Sightings
    clients: list[Sightings]
    memory: int

    def faults(self) -> list[str]:
        """Return what was not there once."""
        found = [f"{line} is not queryable" for line in self.pushed if line not in self.queryable.first]
        for number, client in enumerate(self.clients):
            counts = {line: client.counts[line] for line in self.pushed}
            found += [f"client {number} got {line} {count} times" for line, count in counts.items() if count != 1]
        return [f"{self.load.name}: {fault}" for fault in found]

    def queryable_seconds(self) -> list[float]:
        return [self.queryable.first[line] - moment for line, moment in self.pushed.items()]

    def shown_seconds(self) -> list[float]:
        return [client.first[line] - moment for client in self.clients for line, moment in self.pushed.items()]

    def added_seconds(self) -> list[float]:
        return [client.first[line] - self.queryable.first[line] for client in self.clients for line in self.pushed]

    @property
    def ratio(self) -> float:
        return p95(self.shown_seconds()) / (p95(self.queryable_seconds()) + TARGET_SECONDS)

    def row(self) -> str:
        figures = (self.queryable_seconds(), self.shown_seconds(), self.added_seconds())
        columns = "".join(f"{statistics.median(one):>10.2f} {p95(one):>6.2f}" for one in figures)
        return f"{self.load.name:<12}{columns}{self.ratio:>9.2f}x"


def p95(seconds: list[float]) -> float:
    return statistics.quantiles(seconds, n=20, method="inclusive")[-1]


@dataclass(frozen=True)
class Bench:
    """A lake, and what its clients have."""

    running: Lake
    queryable: Sightings
    clients: list[Sightings]
    http: httpx.Client

    def run(self, load: Load) -> Part:
        """Push the lines, and wait until all of them came everywhere, or for GIVE_UP_SECONDS."""
        texts = [f"{load.name} {number:04}" for number in range(load.lines)]
        with highest_memory(self.running) as highest:
            pushed = {}
            for text in texts:
                pushed[text] = self._push(text, load)
                time.sleep(max(0.0, pushed[text] + load.every - time.monotonic()))
            deadline = time.monotonic() + GIVE_UP_SECONDS
            everywhere = [self.queryable, *self.clients]
            while time.monotonic() < deadline and any(text not in one.first for text in texts for one in everywhere):
                time.sleep(0.05)
        return Part(load, pushed, self.queryable, self.clients, highest[0])

    def _push(self, text: str, load: Load) -> float:
        """Push a line and its filler; return the moment before."""
        when, fillers = time.time_ns() - load.late_ns, range(load.fillers)
        values = {
            "marked": [[str(when), text]],
            "filler": [[str(when), f"{text} filler {number} ".ljust(FILLER_BYTES, "x")] for number in fillers],
        }
        streams = [{"stream": {"app": app}, "values": own} for app, own in values.items() if own]
        moment = time.monotonic()
        self.http.post(f"{self.running.url}/loki/api/v1/push", json={"streams": streams}).raise_for_status()
        return moment


def measure(running: Lake, options: argparse.Namespace) -> list[str]:
    """Print the figures; return the targets that were missed."""
    load = Load("all read", options.lines, options.every, options.filler)
    with ExitStack() as stack:
        queryable = stack.enter_context(querying(running))
        clients = [stack.enter_context(following(running, LINES)) for _ in range(READERS)]
        bench = Bench(running, queryable, clients, stack.enter_context(httpx.Client(timeout=60)))
        with following(running, EVERYTHING):
            warm = bench.run(Load("warm", WARM_LINES, filler=options.filler))
            read = bench.run(load)
        with opened_tail(running, EVERYTHING, RECEIVE_BYTES) as stuck:
            for _ in range(FIRST_FRAMES):
                stuck.recv(GIVE_UP_SECONDS)
            stopped = bench.run(replace(load, name="one stopped"))
            came, named = read_rest(stuck)
        late = bench.run(Load("late lines", LATE_LINES, options.every, late_ns=LATE_NS))
        end = bench.run(Load("end", 1))  # after which a second copy of a line would have come
    if missed := [fault for part in (warm, read, stopped, late, end) for fault in part.faults()]:
        return missed
    print(
        f"{options.lines} lines, one each {options.every} s with {options.filler} MiB of filler; {READERS} tails read"
    )
    print("seconds       queryable p50 p95     shown p50 p95     added p50 p95   p95 shown / (p95 queryable + 1 s)")
    print("\n".join(part.row() for part in (read, stopped, late)))
    print(f"each line once to each tail, also {LATE_LINES} of {LATE_NS // 10**9} s before those that were shown")
    growth = (stopped.memory - read.memory) / MIB
    sizes = ", ".join(f"{part.load.name} {part.memory / MIB:.0f}" for part in (warm, read, stopped, late))
    print(f"highest MiB of the API's process: {sizes}; one stopped - all read: {growth:+.0f} (at most {MEMORY_MIB})")
    total = options.lines * (1 + load.fillers)
    print(f"the client that stopped had {came} of {total} lines in the end, and {named} named as dropped")
    missed += [f"{part.load.name}: {part.ratio:.2f}x" for part in (read, stopped, late) if part.ratio > 1]
    missed += [] if named else ["the client that stopped has lost nothing: its window did not fill"]
    missed += [f"memory grew by {growth:.0f} MiB"] if growth > MEMORY_MIB else []
    return missed


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--lines", type=int, default=60, help="of each part, for less than a minute")
    parser.add_argument("--every", type=float, default=0.5, help="seconds between two lines")
    parser.add_argument("--filler", type=float, default=2.0, help="MiB that are pushed with each line")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory, lake(Path(directory) / "home") as running:
        missed = measure(running, options)
    for target in missed:
        print(f"MISSED: {target}")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
