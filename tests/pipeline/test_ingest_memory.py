"""A task's memory is bounded by its limits, not by its box: each test measures the peak of a process of its own."""

from __future__ import annotations

import gzip
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from isal import igzip
from opentelemetry.proto.logs.v1.logs_pb2 import SEVERITY_NUMBER_INFO, LogRecord, ResourceLogs, ScopeLogs

from lakerunner.objects.open import StoreAddress, shared_store
from lakerunner.pipeline.read.wire import varint
from lakerunner_demo.shop import Shop

MB = 1 << 20
GIGABYTE = 1000  # MB
START = 1_767_225_600_000_000_000

_TASK = r"""
import re, sys
from pathlib import Path
from uuid import UUID
from lakerunner.bus.topics import IngestBox
from lakerunner.model.source import SourceObject
from lakerunner.objects.open import StoreAddress, shared_store
from lakerunner.pipeline.ingest import IngestLimits, ingest_group
from lakerunner.pipeline.warm import warm_ingest
from lakerunner.settings import Settings

warm_ingest()
address, signal = StoreAddress(sys.argv[1]), sys.argv[2]
limits = IngestLimits(Settings().object_max_bytes, int(sys.argv[3]) or Settings().task_max_bytes)
store, sources = shared_store(address), []
for key in sys.stdin.read().split():
    meta = store.head(key)
    sources.append(SourceObject(store.bucket, key, meta.etag, meta.size, meta.modified_ns))
result = ingest_group(IngestBox(UUID(int=1), "test", signal, tuple(sources)), address, limits)
# Not ru_maxrss: that begins with the peak of the process that started this one.
(peak_kb,) = re.findall(r"VmHWM:\s*(\d+) kB", Path("/proc/self/status").read_text())
print(sum(s.rows for s in result.segments), int(peak_kb) >> 10)
print(len({s.id for s in result.segments}), len(result.done), len(result.failed))
for _, reason in result.failed:
    print(reason)
"""


class Task(NamedTuple):
    rows: int
    peak_mb: int
    segments: int
    done: int
    failed: int
    reasons: list[str]


def run_task(store: Path, keys: list[str], signal: str = "logs", task_max_bytes: int = 0) -> Task:
    run = [sys.executable, "-c", _TASK, store.as_uri(), signal, str(task_max_bytes)]
    printed = subprocess.run(run, input="\n".join(keys), capture_output=True, text=True, check=True).stdout.splitlines()
    (rows, peak_mb), (segments, done, failed) = (map(int, line.split()) for line in printed[:2])
    return Task(rows, peak_mb, segments, done, failed, printed[2:])


def put(store: Path, key: str, data: bytes, pack: Callable[[bytes], bytes] = igzip.compress) -> str:
    shared_store(StoreAddress(store.as_uri())).put(key, pack(data))
    return key


def field(tag: int, data: bytes) -> bytes:
    return bytes([tag]) + varint(len(data)) + data


def demo(per_file: int, files: int) -> Iterator[bytes]:
    for batch in Shop(7, START, 500).bulk_logs(per_file * files, per_file=per_file):
        yield bytes(batch.data)


def test_four_times_the_box_takes_no_more_memory(tmp_path: Path) -> None:
    """Files of 4 MB unpacked; a task may hold 8 MB of them."""
    keys = [put(tmp_path, f"otel-raw/default/test/{n}.binpb.gz", data) for n, data in enumerate(demo(8000, 24))]
    few, many = run_task(tmp_path, keys[:6], task_max_bytes=8 * MB), run_task(tmp_path, keys, task_max_bytes=8 * MB)
    assert (few.rows, many.rows) == (48_000, 192_000)
    assert many.peak_mb < few.peak_mb + 40  # 79 MB more went through


def record_of(number: int) -> bytes:
    record = LogRecord(
        time_unix_nano=START + number, severity_number=SEVERITY_NUMBER_INFO, trace_id=number.to_bytes(16, "big")
    )
    record.body.string_value = f"request {number} of checkout took {number % 977} ms"
    record.attributes.add(key="user.id").value.string_value = f"user-{number * 7919 % 100_003}"
    record.attributes.add(key="code").value.int_value = 200 + number % 4
    return record.SerializeToString()


def small_records(size: int) -> tuple[bytes, int]:
    """Many resources of a few thousand records each."""
    (data,) = demo(8000, 1)
    times = size // len(data)
    return data * times, 8000 * times


def one_resource(size: int) -> tuple[bytes, int]:
    """One resource, one scope, all records in it."""
    records = b"".join(field(0x12, record_of(number)) for number in range(20_000))
    times = size // len(records)
    scope = ScopeLogs()
    scope.scope.name = "only"
    resource = ResourceLogs(schema_url="url")
    resource.resource.attributes.add(key="service.name").value.string_value = "huge"
    inside = records * times + scope.SerializeToString()  # the head stands behind the records, as it may
    return field(0x0A, field(0x12, inside) + resource.SerializeToString()), 20_000 * times


def tiny_attributes(size: int) -> tuple[bytes, int]:
    """Records of a thousand attributes of seven bytes."""
    pairs = b"".join(field(0x32, field(0x0A, bytes([97 + n % 26])) + field(0x12, b"")) for n in range(1000))
    record = field(0x12, b"\x09" + START.to_bytes(8, "little") + pairs)
    times = size // len(record)
    return field(0x0A, field(0x12, record * times)), times


def not_utf8(size: int) -> tuple[bytes, int]:
    """Records that must be mended, each to twice its size."""
    record = field(0x12, b"\x09" + START.to_bytes(8, "little") + field(0x2A, field(0x0A, b"\xe9" * 3000)))
    times = size // len(record)
    return field(0x0A, field(0x12, record * times)), times


@pytest.mark.slow
@pytest.mark.parametrize(
    ("content", "size", "copies", "pack"),
    [
        (small_records, 255 * MB, 2, igzip.compress),
        (one_resource, 255 * MB, 1, igzip.compress),
        (one_resource, 255 * MB, 1, lambda data: gzip.compress(data, 0)),  # packed, and no smaller for it
        (tiny_attributes, 60 * MB, 1, igzip.compress),
        (not_utf8, 60 * MB, 1, igzip.compress),
    ],
    ids=["small records", "one resource", "packed in vain", "tiny attributes", "not UTF-8"],
)
def test_a_large_object_is_taken_whole_in_less_than_a_gigabyte(
    tmp_path: Path, content: Callable[[int], tuple[bytes, int]], size: int, copies: int, pack: Callable[[bytes], bytes]
) -> None:
    data, rows = content(size)
    assert len(data) > size * 0.95
    keys = [put(tmp_path, f"otel-raw/default/test/{n}.binpb.gz", data, pack) for n in range(copies)]
    task = run_task(tmp_path, keys)
    print(task)
    assert (task.rows, task.done, task.failed) == (copies * rows, copies, 0)
    assert task.segments > copies
    assert task.peak_mb < GIGABYTE


@pytest.mark.slow
def test_a_thousand_small_objects_take_less_than_a_gigabyte(tmp_path: Path) -> None:
    (data,) = demo(600, 1)
    keys = [put(tmp_path, f"otel-raw/default/test/{number}.binpb.gz", data) for number in range(1000)]
    task = run_task(tmp_path, keys)
    print(task)
    assert (task.rows, task.done, task.failed) == (600_000, 1000, 0)
    assert task.peak_mb < GIGABYTE
