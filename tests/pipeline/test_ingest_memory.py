"""A task's memory is bounded by its limits, not by its box."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

_GROUPS = """
import resource, sys
from uuid import UUID
from isal import igzip
from lakerunner.bus.topics import IngestBox
from lakerunner.demo.shop import Shop
from lakerunner.model.source import SourceObject
from lakerunner.objects.open import StoreAddress, shared_store
from lakerunner.pipeline.ingest import IngestLimits, ingest_group
from lakerunner.pipeline.segments import warm

warm()
address = StoreAddress(sys.argv[1])
store, sources = shared_store(address), []
for number, batch in enumerate(Shop(7, 1_767_225_600_000_000_000, 500).bulk_logs(24 * 8000, per_file=8000)):
    key = f"otel-raw/default/test/{number}.binpb.gz"
    store.put(key, igzip.compress(batch.data))
    meta = store.head(key)
    sources.append(SourceObject(store.bucket, key, meta.etag, meta.size, meta.modified_ns))
for taken in (sources[:6], sources):
    box = IngestBox(UUID(int=1), "test", "logs", tuple(taken))
    result = ingest_group(box, address, IngestLimits(64 << 20, 8 << 20))
    print(sum(s.rows for s in result.segments), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10)
"""


def test_four_times_the_box_takes_no_more_memory(tmp_path: Path) -> None:
    """Files of 4 MB unpacked; a task may hold 8 MB of them."""
    run = [sys.executable, "-c", _GROUPS, (tmp_path / "store").as_uri()]
    printed = subprocess.run(run, capture_output=True, text=True, check=True).stdout.split()
    few_rows, few_mb, many_rows, many_mb = map(int, printed)
    assert (few_rows, many_rows) == (48_000, 192_000)
    assert many_mb < few_mb + 40  # 79 MB more went through
