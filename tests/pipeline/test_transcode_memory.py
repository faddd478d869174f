"""What transcoding takes is a small multiple of what comes in and goes out, however many records that is."""

from __future__ import annotations

import io
import json
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

_IN_A_PROCESS_OF_ITS_OWN = """
import resource, sys
from lakerunner.pipeline.transcode.columns import GUESSED
from lakerunner.pipeline.transcode.formats import TRANSCODERS
_, name, path, sample = sys.argv
TRANSCODERS[name]("logs", memoryview(open(sample, "rb").read()), GUESSED)
data = memoryview(open(path, "rb").read())
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
out = TRANSCODERS[name]("logs", data, GUESSED).require_complete()
print(len(data), len(out), (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) << 10)
"""

RECORDS = [{"ts": 1_700_000_000 + n, "msg": f"order {n} " + "x" * 300, "level": "info", "n": n} for n in range(40_000)]


def jsonl(count: int) -> bytes:
    return "\n".join(map(json.dumps, RECORDS[:count])).encode()


def csv(count: int) -> bytes:
    return "\n".join(["ts,msg,level,n", *(",".join(map(str, r.values())) for r in RECORDS[:count])]).encode()


def parquet(count: int) -> bytes:
    out = io.BytesIO()
    pq.write_table(pa.Table.from_pylist(RECORDS[:count]), out, row_group_size=10_000, compression="none")
    return out.getvalue()


def text(count: int) -> bytes:
    return "\n".join(f"2026-11-17T12:00:00Z INFO {r['msg']}\n\tat {r['n']}" for r in RECORDS[:count]).encode()


@pytest.mark.parametrize("write", [jsonl, csv, parquet, text])
def test_memory_is_bounded_by_input_and_output(tmp_path: Path, write: object) -> None:
    assert callable(write)
    (tmp_path / "sample").write_bytes(write(10))
    (tmp_path / "file").write_bytes(write(len(RECORDS)))
    name = write.__name__  # type: ignore[attr-defined]
    run = [sys.executable, "-c", _IN_A_PROCESS_OF_ITS_OWN, name, str(tmp_path / "file"), str(tmp_path / "sample")]
    size, out, grown = map(int, subprocess.run(run, capture_output=True, text=True, check=True).stdout.split())
    assert min(size, out) > 10 << 20
    # The request, once in parts and once whole, what Arrow holds of a row group, and some slack.
    assert grown < 2 * out + size + (16 << 20)
