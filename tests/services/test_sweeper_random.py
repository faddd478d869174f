"""Random lakes: the files that a sweep deletes are exactly those that plain rules name; and kill -9 at every failpoint
of a sweep, after which the next one ends what it began and takes nothing else.

SWEEP_SEED=... replays one.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from threading import Thread

import pytest

from lakerunner.model.time import MINUTE_NS
from lakerunner.objects.open import StoreAddress, open_store
from lakerunner.services.sweep.finding import segment_in
from lakerunner.services.sweeper import SweepReport, findings, sweep
from servers.lake import clean_environment
from servers.postgres import empty_index
from suites.random_lake import RETENTION, RandomLake
from suites.small_pages import small_chores
from suites.swept_lake import ACME, GRACE_NS, NOW_NS, OTHER, SweptLake

SCRIPT = Path(__file__).resolve().parents[1] / "suites" / "dying_sweeper.py"
SEEDS = [int(os.environ["SWEEP_SEED"])] if "SWEEP_SEED" in os.environ else list(range(8))
# What is expired now goes a grace time later.
LATER_NS = NOW_NS + GRACE_NS + MINUTE_NS


@pytest.fixture
def made(embedded_postgres_url: str, tmp_path: Path) -> Iterator[RandomLake]:
    with empty_index(embedded_postgres_url, ACME, OTHER, connections=6) as index:
        yield RandomLake(SweptLake(index, open_store(StoreAddress((tmp_path / "store").as_uri()))))


def swept(made: RandomLake, tmp_path: Path, now_ns: int, *, page: int = 2) -> SweepReport:
    address = StoreAddress((tmp_path / "store").as_uri())
    chores = small_chores(made.lake.index, made.lake.store, address, RETENTION, page=page)
    report = sweep(chores, now_ns, lambda *_: None, lambda: True)
    assert report.failures == []
    return report


@pytest.mark.parametrize("seed", SEEDS)
def test_exactly_what_is_due_goes(made: RandomLake, tmp_path: Path, seed: int) -> None:
    made.fill(seed)
    lake = made.lake
    assert lake.objects() == made.all_files
    address = StoreAddress((tmp_path / "store").as_uri())
    before = lake.states()
    told: set[str] = set()
    findings(
        small_chores(lake.index, lake.store, address, RETENTION),
        NOW_NS,
        lambda chore, _, found: told.update(
            key for one in found if one.goes and chore != "retention" for key in one.keys
        ),
    )
    assert (lake.objects(), lake.states()) == (made.all_files, before)
    report = swept(made, tmp_path, NOW_NS, page=1 + seed % 7)
    assert lake.objects() == made.left
    assert told == made.all_files - made.left
    assert report.objects == len(told)
    expected = before | {one.id: "expired" for one in made.expiring}
    for one in made.ending:
        del expected[one.id]
    assert lake.states() == expected


def is_whole(made: RandomLake) -> None:
    """What holds at any moment: files of what stays are there, and a file without a row was an orphan before."""
    objects, states = made.lake.objects(), made.lake.states()
    stays = made.files(made.staying) | made.others
    assert stays <= objects <= made.all_files
    assert {one.id for one in made.staying} <= states.keys()
    rowless = {key for key in objects if (id_ := segment_in(key)) and id_ not in states}
    assert rowless <= made.orphans | made.others


@pytest.mark.parametrize("seed", SEEDS[:1])
@pytest.mark.parametrize(
    "failpoint",
    [
        "before-expire",
        "after-expire",
        "after-expire:2",
        "before-sweep",
        "before-sweep:2",
        "after-sweep",
        "after-sweep:3",
        "after-forget",
        "after-forget:2",
    ],
)
def test_killed_at_any_point_the_next_sweep_ends_it(
    made: RandomLake, tmp_path: Path, seed: int, failpoint: str
) -> None:
    made.fill(seed)
    order = {
        "failpoint": failpoint,
        "index": made.lake.index.url,
        "store": (tmp_path / "store").as_uri(),
        "options": [],
        "now_ns": NOW_NS,
        "retention": RETENTION,
    }
    died = subprocess.run(
        [sys.executable, str(SCRIPT), json.dumps(order)],
        env=clean_environment(),
        capture_output=True,
        timeout=120,
        check=False,
    )
    assert died.returncode == -9, died.stderr.decode()
    is_whole(made)
    swept(made, tmp_path, NOW_NS)
    is_whole(made)
    assert made.lake.objects() == made.left
    swept(made, tmp_path, LATER_NS)
    gone = made.files(made.expiring)
    assert not gone & made.lake.objects()
    assert not {one.id for one in made.expiring} & made.lake.states().keys()


def test_two_sweepers_at_once_do_what_one_does(made: RandomLake, tmp_path: Path) -> None:
    """Whoever is wrongly thought dead may be at it still: both are right, so nothing else goes."""
    made.fill(99)
    reports: list[SweepReport] = []
    threads = [Thread(target=lambda: reports.append(swept(made, tmp_path, NOW_NS))) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(reports) == 2
    assert made.lake.objects() == made.left
    assert {one.id for one in made.expiring} <= made.lake.states().keys()
    is_whole(made)
