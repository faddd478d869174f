"""What many rows share: taken in bounded memory up to a limit, and refused beyond it by doors and ingest alike."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from uuid import UUID

import pytest

from lakerunner.api.push.push_store import Origin
from lakerunner.api.push.receiver import check_all
from lakerunner.model.errors import UserError
from lakerunner.model.signal import SIGNALS
from lakerunner.pipeline.read import otlp, pieces, shared
from lakerunner.pipeline.read.wire import varint
from pipeline.otlp_oracle import make, raw_of

START = 1_767_225_600_000_000_000
RECORDS = 100
SIZE = 40_000


def field(tag: int, data: bytes) -> bytes:
    return bytes([tag]) + varint(len(data)) + data


def pair(key: bytes, value: bytes) -> bytes:
    return field(0x0A, key) + field(0x12, field(0x0A, value))


def time(tag: int, number: int) -> bytes:
    return bytes([tag]) + (START + number).to_bytes(8, "little")


def log(number: int, padding: int = 0) -> bytes:
    return time(0x09, number) + field(0x2A, field(0x0A, b"m" * padding))


def span(number: int, padding: int = 0) -> bytes:
    ids = field(0x0A, number.to_bytes(16, "big")) + field(0x12, number.to_bytes(8, "big"))
    return ids + field(0x2A, b"s" * padding) + time(0x39, number) + time(0x41, number + 5)


def point(number: int, padding: int = 0) -> bytes:
    """Each of a series of its own."""
    return field(0x3A, pair(b"n", b"%d" % number + b"p" * padding)) + time(0x19, number) + bytes([0x21, *bytes(8)])


ITEMS = {"logs": log, "traces": span, "metrics": point}


def many(size: int) -> list[bytes]:
    """Attributes of a kilobyte: more of them than get columns, where the size allows."""
    return [pair(b"k%d" % number, b"x" * 1000) for number in range(size // 1000)]


def items(signal: str, count: int, padding: int, metric: bytes = b"") -> bytes:
    found = [ITEMS[signal](number, padding) for number in range(count)]
    if signal != "metrics":
        return b"".join(field(0x12, one) for one in found)
    points = b"".join(field(0x0A, one) for one in found)
    return field(0x12, field(0x0A, b"requests") + metric + field(0x2A, points))


def of_resource(signal: str, size: int, count: int, padding: int = 0) -> bytes:
    resource = b"".join(field(0x0A, one) for one in many(size))
    return field(0x0A, field(0x0A, resource) + field(0x12, items(signal, count, padding)))


def of_service(signal: str, size: int, count: int, padding: int = 0) -> bytes:
    resource = field(0x0A, pair(b"service.name", b"s" * size))
    return field(0x0A, field(0x0A, resource) + field(0x12, items(signal, count, padding)))


def of_scope(signal: str, size: int, count: int, padding: int = 0) -> bytes:
    scope = b"".join(field(0x1A, one) for one in many(size))
    return field(0x0A, field(0x12, field(0x0A, scope) + items(signal, count, padding)))


def of_schema(signal: str, size: int, count: int, padding: int = 0) -> bytes:
    return field(0x0A, field(0x12, items(signal, count, padding)) + field(0x1A, b"u" * size))


def of_metric(signal: str, size: int, count: int, padding: int = 0) -> bytes:
    return field(0x0A, field(0x12, items("metrics", count, padding, field(0x12, b"d" * size))))


def of_metadata(signal: str, size: int, count: int, padding: int = 0) -> bytes:
    metadata = b"".join(field(0x62, one) for one in many(size))
    return field(0x0A, field(0x12, items("metrics", count, padding, metadata)))


def refusals(signal: str, form: str, requests: dict[bytes, bytes]) -> dict[bytes, UserError]:
    return check_all(Origin(UUID(int=1), signal, form), requests, START)[1]


SHARED = [(signal, owner) for signal in SIGNALS for owner in (of_resource, of_service, of_scope, of_schema)]
SHARED += [("metrics", of_metric), ("metrics", of_metadata)]


@pytest.mark.parametrize(("signal", "owner"), SHARED)
def test_what_rows_share_is_taken_up_to_the_limit(
    monkeypatch: pytest.MonkeyPatch, signal: str, owner: Callable[..., bytes]
) -> None:
    data = owner(signal, SIZE, RECORDS)
    raws, spec = [raw_of(data)], SIGNALS[signal]
    made, _ = make(*raws, spec=spec)
    ((_, reason),) = made.failed
    assert (made.segments, made.done) == ((), ())
    size, grown = len(data), int(reason.split()[3])
    assert RECORDS * (SIZE - shared.FREE_BYTES) <= grown < RECORDS * (SIZE * 1.1 - shared.FREE_BYTES)
    assert reason == (
        f"{size} bytes become {grown} when resources, scopes, metrics and series are repeated "
        "for each of their rows, beyond 8192 bytes per row: the limit is 32 times the size. "
        "Send smaller resources, or fewer records with each"
    )
    ((_, error),) = refusals(signal, "otlp", {b"a" * 16: data}).items()
    assert (error.http_status, str(error)) == (400, reason)
    times = -(-grown // size)
    monkeypatch.setattr(shared, "MAX_TIMES", times - 1)
    assert make(*raws, spec=spec)[0].failed
    monkeypatch.setattr(shared, "MAX_TIMES", times)
    assert sum(segment.rows for segment in make(*raws, spec=spec)[0].segments) == RECORDS
    assert refusals(signal, "otlp", {b"a" * 16: data}) == {}


def test_a_series_of_remote_write_is_shared_by_its_samples() -> None:
    labels = b"".join(field(0x0A, field(0x0A, b"l%03d" % number) + field(0x12, b"x" * 1000)) for number in range(40))
    sample = field(0x12, b"\x09" + bytes(8) + b"\x10" + varint(START // 1_000_000))
    request = field(0x0A, field(0x0A, field(0x0A, b"__name__") + field(0x12, b"m")) + labels + sample * RECORDS)
    ((_, error),) = refusals("metrics", "prw1", {b"a" * 16: request}).items()
    assert "bytes become 33" in str(error)


def test_neighbours_of_what_is_refused_are_taken() -> None:
    good = [raw_of(of_resource("logs", 1000, 2, 1 + number), f"good {number}") for number in range(2)]
    made, _ = make(good[0], raw_of(of_resource("logs", SIZE, RECORDS), "bad"), good[1])
    assert sorted(source.key for source in made.done) == ["good 0", "good 1"]
    assert [source.key for source, _ in made.failed] == ["bad"]
    assert sum(segment.rows for segment in made.segments) == 4


def test_a_request_that_must_be_cut_is_judged_by_its_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """More than is read at once is neither a reason to refuse a request nor one to fail."""
    for module in (otlp, pieces):
        monkeypatch.setattr(module, "MAX_MEMORY", 200_000)
    large, bad = of_resource("logs", 1000, 2000), of_resource("logs", 6000, 2000)
    monkeypatch.setattr(shared, "FREE_BYTES", 2000)
    found = refusals("logs", "otlp", {b"a" * 16: large, b"b" * 16: bad, b"c" * 16: b"\xff"})
    assert {digest[:1]: str(error).partition(": ")[0].partition(" become")[0] for digest, error in found.items()} == {
        b"b": f"{len(bad)} bytes",
        b"c": "not an OTLP logs request",
    }


_LARGEST = """
import re, resource, sys
from pathlib import Path
sys.path[:0] = sys.argv[1:]
from pipeline.test_read_shared import SIGNALS, make, of_resource, raw_of
from lakerunner.pipeline.warm import warm_ingest
warm_ingest()
held = int(Path("/proc/self/statm").read_text().split()[5]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_DATA, (held + (1 << 30),) * 2)
for signal in SIGNALS:
    for size, count, padding in ((1_000_000, 20_000, 0), (1_000_000, 1700, 32_000), (8_000, 50_000, 0)):
        made, _ = make(raw_of(of_resource(signal, size, count, padding)), spec=SIGNALS[signal])
        print(signal, sum(segment.rows for segment in made.segments), len(made.failed))
"""


@pytest.mark.heavy
def test_no_signal_needs_more_than_a_gigabyte_of_memory_for_what_rows_share() -> None:
    """Beyond the limit; close to it, in a file as large as may be read at once; and below what is free in each row."""
    run = [sys.executable, "-c", _LARGEST, str(Path(__file__).parent), str(Path(__file__).parents[1])]
    done = subprocess.run(run, capture_output=True, text=True, check=False)
    assert done.stdout.splitlines() == [
        line for signal in SIGNALS for line in (f"{signal} 0 1", f"{signal} 1700 0", f"{signal} 50000 0")
    ], done.stderr
