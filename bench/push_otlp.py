"""What a push door takes over HTTP with many clients at once, two ways in one run: requests that share raw objects
(push_max_seconds as set by default), and one object per request (push_max_seconds=0). Requests are OTLP logs, or with
--remote-write samples of Prometheus. CPU is that of the door's process, user and system, for each request.

Each way is a `lakerunner pubsub` process of its own, on the embedded PostgreSQL and a local store, which both sync
what they write. A client sends its next
request when the last one was answered, that is, when it is durable. The ways take turns for each number of clients.

    python bench/push_otlp.py [--clients 16 64 256] [--seconds 5] [--records 100] [--remote-write]

Exit code 1 if a request was refused, or if the objects do not hold every accepted record once.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import re
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import numpy as np
import pyarrow as pa
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest

from _samples import OPENING_MS, counter, written
from lakerunner.pipeline.remote_write.fields import V1
from lakerunner.pipeline.remote_write.message_check import check_frames
from lakerunner.pipeline.unpack import unpack
from lakerunner_demo.shop import Shop

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from servers.lake import lakerunner
from servers.postgres import embedded_postgres, fresh_database

OPENING_NS = 1_767_225_600_000_000_000  # 2026-01-01
HEAD = b"POST %s HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/x-protobuf\r\ncontent-length: %d\r\n\r\n"
WAYS: dict[str, dict[str, str]] = {"shared objects": {}, "one object each": {"LAKERUNNER_PUSH_MAX_SECONDS": "0"}}


@dataclass(frozen=True)
class Door:
    port: int
    store: Path
    pid: int

    def cpu_seconds(self) -> float:
        """Return the user and system time of the process so far."""
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def records(self) -> int:
        """Count the records of all objects."""
        found = 0
        for path in self.store.rglob("*.zst"):
            form, data = unpack(path.name, memoryview(path.read_bytes()), 1 << 30)
            if form == "prw1":
                found += check_frames(np.frombuffer(data, np.uint8), V1).samples
                continue
            request = ExportLogsServiceRequest.FromString(bytes(data))
            found += sum(len(scope.log_records) for one in request.resource_logs for scope in one.scope_logs)
        return found

    def objects(self) -> int:
        return sum(1 for _ in self.store.rglob("*.zst"))


@contextmanager
def door(home: Path, postgres: str, environment: dict[str, str]) -> Iterator[Door]:
    (home / "store").mkdir(parents=True)
    shared = {"DATABASE_URL": fresh_database(postgres), "LAKERUNNER_STORE": (home / "store").as_uri()}
    environment = environment | shared
    with lakerunner(["pubsub", "--home", str(home), "--listen", "127.0.0.1:0"], home / "log", environment) as process:
        process.wait_for("ready at ")
        found = re.search(r"ready at http://127\.0\.0\.1:(\d+)", process.text())
        assert found, process.text()
        yield Door(int(found[1]), home / "store", process.popen.pid)


def samples(records: int) -> Iterator[bytes]:
    """Yield remote-write requests of this many samples, no two alike, as HTTP."""
    named = [counter(number) for number in range(records)]
    for number in range(100_000_000):
        values = np.full((records, 1), float(number))
        data = pa.compress(written(named, np.array([OPENING_MS + number]), values), codec="snappy", asbytes=True)
        yield HEAD % (b"/api/v1/write", len(data)) + data


def requests(records: int) -> Iterator[bytes]:
    """Yield export requests of this many records, no two alike, as HTTP."""
    shop = Shop(seed=7, start_ns=OPENING_NS, rate=500)
    for batch in shop.bulk_logs(100_000_000, per_file=records):
        yield HEAD % (b"/v1/logs", len(batch.data)) + batch.data


async def client(port: int, sent: Iterator[bytes], until: float) -> list[bool]:
    """Send until the time is over; return for each request whether it was accepted."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    answers = []
    while time.monotonic() < until and (data := next(sent, None)):
        writer.write(data)
        head = await reader.readuntil(b"\r\n\r\n")
        size = re.search(rb"content-length: (\d+)", head, re.I)
        await reader.readexactly(int(size[1]) if size else 0)
        answers.append(head.startswith(b"HTTP/1.1 20"))
    writer.close()
    return answers


async def push(port: int, ready: Sequence[bytes], clients: int, seconds: float) -> tuple[list[bool], float]:
    """Return (whether each was accepted, how long it took)."""
    start = time.monotonic()
    sent = iter(ready)
    answers = await asyncio.gather(*(client(port, sent, start + seconds) for _ in range(clients)))
    return [answer for some in answers for answer in some], time.monotonic() - start


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--clients", type=int, nargs="+", default=[16, 64, 256])
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--records", type=int, default=100, help="of one request")
    parser.add_argument("--remote-write", action="store_true", help="push samples to the door of remote-write")
    options = parser.parse_args()
    source = samples(options.records) if options.remote_write else requests(options.records)
    accepted = dict.fromkeys(WAYS, 0)
    with tempfile.TemporaryDirectory() as directory, ExitStack() as stack:
        postgres = stack.enter_context(embedded_postgres(Path(directory, "postgres")))
        doors = {
            way: stack.enter_context(door(Path(directory, str(number)), postgres, environment))
            for number, (way, environment) in enumerate(WAYS.items())
        }
        for way, opened in doors.items():  # the first request waits for machine code to be loaded
            answers, _ = asyncio.run(push(opened.port, [next(source)], 1, 300))
            accepted[way] += sum(answers)
        print(f"{'clients':>8} {'way':<16} {'requests/s':>11} {'records/s':>11} {'objects':>8} {'CPU ms':>7}")
        for clients in options.clients:
            rates = {}
            for way, opened in doors.items():
                ready = list(islice(source, int(options.seconds * 600)))
                before, cpu = opened.objects(), opened.cpu_seconds()
                answers, seconds = asyncio.run(push(opened.port, ready, clients, options.seconds))
                if not all(answers):
                    print(f"{answers.count(False)} of {len(answers)} requests were refused")
                    return 1
                accepted[way] += len(answers)
                rates[way] = len(answers) / seconds
                count, each = opened.objects() - before, 1000 * (opened.cpu_seconds() - cpu) / len(answers)
                print(
                    f"{clients:>8} {way:<16} {rates[way]:>11.0f} {rates[way] * options.records:>11.0f} {count:>8} "
                    f"{each:>7.2f}"
                )
            shared, each = rates.values()
            print(f"{clients:>8} shared / one each: {shared / each:.1f}x")
        held = {way: opened.records() for way, opened in doors.items()}
    expected = {way: count * options.records for way, count in accepted.items()}
    if held != expected:
        print(f"accepted records {expected}, but the objects hold {held}")
        return 1
    print(f"every accepted record is in an object, once: {sum(held.values())}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
