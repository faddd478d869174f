"""The PromQL scripts once more, through ingest and HTTP, with the series split over three query workers."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from conformance.check import problem
from conformance.http_subject import same_as_shown
from conformance.lake import WORKERS, ScriptedLake, scripted_lake
from conformance.run import Failure, scripts
from conformance.script import Case, read_script

FEW = ("staleness.test", "names_at_once.test", "native_histograms.test", "sketches.test")
PATHS = scripts([], "promql")


def cases_of(paths: list[Path]) -> list[Case]:
    return [case for path in paths for case in read_script(path) if case.starts_are_unknown]


def check(lake: ScriptedLake, cases: list[Case]) -> None:
    failures = []
    for case in cases:
        reason = problem(case, lake.subject, same_as_shown, moved=False)
        if reason:
            failures.append(str(Failure(case, reason)))
    assert failures == [], f"{len(failures)} of {len(cases)}:\n" + "\n".join(failures)


@pytest.mark.heavy
def test_a_few_scripts_through_ingest_and_three_workers(tmp_path: Path) -> None:
    cases = cases_of([path for path in PATHS if path.name in FEW])
    with scripted_lake(tmp_path, cases, by_spark=False) as lake:
        check(lake, cases)
        assert max(len(lake.workers_of(case)) for case in cases if case.instant and not case.fail) == WORKERS


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ScriptedLake]:
    with scripted_lake(tmp_path_factory.mktemp("scripts"), cases_of(PATHS), by_spark=True) as served:
        yield served


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("path", PATHS, ids=lambda path: path.name)
def test_script(lake: ScriptedLake, path: Path) -> None:
    check(lake, cases_of([path]))
