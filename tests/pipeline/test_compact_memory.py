"""A merge of far more than its memory: what the process takes at most, as the system counts it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any
from uuid import UUID

import numpy as np
import pyarrow as pa
import pytest

from lakerunner.model.segment import Column, Segment
from lakerunner.model.signal import TRACES
from lakerunner.objects.open import StoreAddress, open_store
from lakerunner.pipeline.compact import CompactLimits, CompactWork, compact_work
from lakerunner.pipeline.merge.output import RowGroups, SegmentOutput
from lakerunner.pipeline.segment.writer import SegmentIdentity

ORGANIZATION = UUID(int=1)
START = 1_760_000_400_000_000_000
PAYLOAD = "attributes.payload"
_EMPTY = {pa.string(): "", pa.binary(): b"", pa.uint32(): 0, pa.int32(): 0}


def segment(store_url: str, number: int, rows: int, payload: int, directory: Path, *, is_run: bool) -> Segment:
    """Spans with noise beside them, which no encoding makes smaller than six bits of eight. Those of a run are of one
    trace and time: they have one sort key."""
    chance = np.random.default_rng(number)
    fields = [field for field in TRACES.schema if not field.nullable]
    ids = np.sort(chance.integers(0, 256, (rows, 16), np.uint8).view("S16").ravel())
    times = START + np.arange(rows)
    if is_run:
        ids[:], times[:] = b"t" * 16, START
    noise = chance.integers(0, 64, (rows, payload), np.uint8) + 48
    arrays = {
        "timestamp": pa.array(times, pa.timestamp("ns")),
        "trace_id": pa.array([one.ljust(16, b"\0") for one in ids.tolist()], pa.binary()),
        "span_id": pa.array([f"{row:08}".encode() for row in range(rows)], pa.binary()),
        PAYLOAD: pa.array([row.tobytes().decode() for row in noise], pa.string()),
    }
    for field in fields:
        if pa.types.is_map(field.type):
            arrays[field.name] = pa.array([[]] * rows, field.type)
        elif field.name not in arrays:
            arrays[field.name] = pa.array([_EMPTY[field.type]] * rows, field.type)
    schema = pa.schema([*fields, pa.field(PAYLOAD, pa.string())])
    batch = pa.RecordBatch.from_arrays([arrays[name] for name in schema.names], schema=schema)
    columns = (*(Column(field.name, "") for field in fields), Column(PAYLOAD, "string"))
    identity = SegmentIdentity(UUID(int=number + 1), ORGANIZATION, "c", TRACES, ingested=number + 1)
    output = SegmentOutput(schema, columns, directory, open_store(StoreAddress(store_url)).put_file)
    return output.write(identity, RowGroups([batch], TRACES), {})


def resident(name: str) -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(name))


def measured(directory: Path, inputs: int, rows: int, payload: int, memory: int, is_run: int) -> None:
    """Makes the segments and merges them in this process; prints what it took beyond what it had before."""
    url = (directory / "store").as_uri()
    (directory / "store").mkdir()
    small = [segment(url, 1000 + number, 200, 50, directory, is_run=False) for number in range(2)]
    limits = CompactLimits(memory, 1 << 30)
    compact_work(CompactWork(ORGANIZATION, "c", "traces", 0, 1, tuple(small)), StoreAddress(url), limits)
    given = tuple(segment(url, number, rows, payload, directory, is_run=bool(is_run)) for number in range(inputs))
    pa.default_memory_pool().release_unused()
    Path("/proc/self/clear_refs").write_text("5")  # forget the most it ever had
    before = resident("VmRSS")
    outcome = compact_work(CompactWork(ORGANIZATION, "c", "traces", 0, 1, given), StoreAddress(url), limits)
    grown = resident("VmHWM") - before
    print(
        json.dumps(
            {
                "error": outcome.error,
                "rows": sum(one.rows for one in outcome.segments),
                "bytes": sum(one.bytes for one in given),
                "grown": grown,
                "pool": pa.default_memory_pool().max_memory(),
            }
        )
    )


def took(directory: Path, inputs: int, rows: int, payload: int, memory: int, *, is_run: bool) -> dict[str, Any]:
    numbers = map(str, (inputs, rows, payload, memory, int(is_run)))
    command = [sys.executable, __file__, str(directory), *numbers]
    found: dict[str, Any] = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)
    return found


@pytest.mark.slow
@pytest.mark.parametrize("is_run", [False, True], ids=["many sort keys", "one sort key"])
def test_a_merge_takes_no_more_memory_than_it_may(is_run: bool, tmp_path: Path) -> None:
    """A third of what tasks have by default, for a third of the input that they are made for; the pages of 24 files and
    a row group on its way out come on top."""
    memory, inputs, rows, payload = 256 << 20, 24, 8000, 2000
    found = took(tmp_path, inputs, rows, payload, memory, is_run=is_run)
    assert found["error"] == ""
    assert found["rows"] == inputs * rows
    assert found["bytes"] > 275 << 20
    assert found["grown"] < 420 << 20


if __name__ == "__main__":
    measured(Path(sys.argv[1]), *map(int, sys.argv[2:]))
