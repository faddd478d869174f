"""`lakerunner fsck`, the command itself, over a lake in S3: what is whole is clean, what is damaged is named, and what
cannot be reached is said. Exit codes are those of docs/guides/operate.md."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from typing import Any

import pytest

from lakerunner.index.commit import Commit
from lakerunner.index.index import Index
from lakerunner.model.organization import DEFAULT_ORGANIZATION
from lakerunner.model.segment import Segment, segment_id
from lakerunner.model.signal import SIGNALS
from lakerunner.model.source import SourceObject
from lakerunner.objects.open import open_store
from lakerunner.objects.store import ObjectStore
from lakerunner.pipeline.compact import CompactLimits
from lakerunner.pipeline.make_segments import make_segments
from lakerunner.pipeline.read.rows import Raw
from lakerunner.pipeline.rollup_job import RollupWork, rollup_work
from servers.lake import LAKERUNNER, clean_environment
from servers.postgres import drop_database, fresh_database
from servers.seaweedfs import S3Server, seaweedfs
from suites.checked import START, START_NS, logs_of, points_of, spans_of

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]
OWN = DEFAULT_ORGANIZATION.id


@dataclass
class S3Lake:
    server: S3Server
    index: Index
    store: ObjectStore
    segments: dict[str, Segment]
    environment: dict[str, str]

    def fsck(self, *arguments: str, **settings: str) -> tuple[int, dict[str, Any]]:
        """The exit code, and what --json prints."""
        ran = subprocess.run(
            [*LAKERUNNER, "fsck", "--json", *arguments],
            capture_output=True,
            text=True,
            timeout=120,
            env=clean_environment(self.environment | settings),
            check=False,
        )
        return ran.returncode, json.loads(ran.stdout) if ran.stdout else {"said": ran.stderr}

    def found(self, *arguments: str, **settings: str) -> set[tuple[str, str, str]]:
        """(severity, what, where) of each finding, of a lake with errors."""
        code, said = self.fsck(*arguments, **settings)
        assert (code, said["complete"]) == (1, True)
        assert said["errors"] == sum(one["severity"] == "error" for one in said["findings"])
        return {(one["severity"], one["what"], one["where"]) for one in said["findings"]}


@pytest.fixture(scope="module")
def lake(embedded_postgres_url: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Lake]:
    """A segment of each signal, and windows of the metrics. Its tests damage it one after the other."""
    directory = tmp_path_factory.mktemp("fsck-s3")
    url = fresh_database(embedded_postgres_url)
    with seaweedfs(directory / "s3") as server, closing(Index.open(url, connections=2)) as index:
        index.migrate()
        index.organizations.create(DEFAULT_ORGANIZATION)
        address = server.address("lake")
        environment = {
            "DATABASE_URL": url,
            "LAKERUNNER_HOME": str(directory / "home"),
            "LAKERUNNER_STORE": address.url,
            "LAKERUNNER_STORE_OPTIONS": ",".join(f"{name}={value}" for name, value in address.options),
            "LAKERUNNER_STORE_RETRY_SECONDS": "1",
        }
        store = open_store(address)
        made = S3Lake(server, index, store, {}, environment)
        for signal, data in (
            ("logs", logs_of(*(f"message {n}" for n in range(500)))),
            ("metrics", points_of(*range(120), time=START + 1)),
            ("traces", spans_of("a", "b", "c")),
        ):
            source = SourceObject("tests", signal, signal, len(data), START_NS)
            (segment,) = make_segments(
                SIGNALS[signal], OWN, "edge", [Raw(source, memoryview(data))], store.put
            ).segments
            index.commit(Commit((segment,), (), ()))
            made.segments[signal] = segment
        points = (made.segments["metrics"],)
        outcome = rollup_work(
            RollupWork(OWN, "edge", 0, 10_000, points, points), address, CompactLimits(64 << 20, 1 << 30)
        )
        (made.segments["windows"],) = outcome.segments
        index.commit(Commit(outcome.segments, (), (), rolled=(points[0].id,), rolled_of=OWN))
        yield made
    drop_database(url)


def test_a_lake_that_is_whole_is_clean(lake: S3Lake) -> None:
    for arguments, rows in (((), None), (("--deep",), 500 + 120 + 3 + lake.segments["windows"].rows)):
        code, said = lake.fsck(*arguments)
        assert (code, said["errors"], said["findings"], said["complete"]) == (0, 0, [], True), said
        assert (said["looked_at"]["segments"], said["looked_at"].get("rows read")) == (4, rows)
        assert said["looked_at"]["windows recomputed"] == 12


def test_what_is_damaged_is_found_by_name(lake: S3Lake) -> None:
    gone, cut, flipped = (lake.segments[name] for name in ("traces", "logs", "metrics"))
    data = bytes(lake.store.get(cut.path, max_bytes=1 << 30))
    lake.store.put(cut.path, data[: len(data) // 2])
    lake.store.delete([gone.path])
    foreign = f"db/{OWN}/edge/20251009/logs/08/tbl_{segment_id('foreign')}.parquet"
    unowned = f"db/{segment_id('nobody')}/edge/x"
    for key in (foreign, unowned):
        lake.store.put(key, b"abc")
    errors = {
        ("error", "the file of a live segment with 3 rows is missing", gone.path),
        ("error", f"it has {len(data) // 2} bytes, {cut.bytes} in the index", cut.path),
        ("error", "this object belongs to no known organization", unowned),
    }
    young = "1 young object not known to the index: work that is about to be committed, or was cut"
    assert lake.found() == errors | {("note", young, foreign)}
    # Past the grace time of the sweeper it should not be there any more.
    unknown = "this object of 3 bytes is not in the index, 0.0 hours old"
    errors.add(("error", unknown, foreign))
    assert lake.found(LAKERUNNER_SWEEP_GRACE_SECONDS="0") == errors
    points = bytearray(lake.store.get(flipped.path, max_bytes=1 << 30))
    points[len(points) // 8] ^= 1
    lake.store.put(flipped.path, bytes(points))
    deep = lake.found("--deep", LAKERUNNER_SWEEP_GRACE_SECONDS="0")
    ((severity, what, where),) = deep - errors
    assert (severity, what[:19], where) == ("error", "cannot be read: ", flipped.path)
    assert errors < deep


def test_a_store_that_is_away(lake: S3Lake) -> None:
    """The last test."""
    lake.server.stop()
    code, said = lake.fsck()
    assert (code, said["errors"], said["complete"]) == (3, 0, False)
    assert any(one.startswith("files of default: ") for one in said["not_checked"]), said
