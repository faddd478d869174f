"""The LogQL scripts once more: lines pushed over HTTP, ingested, and queried over HTTP on three query workers."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from conformance.lake import WORKERS
from conformance.logql_check import log_problem
from conformance.logql_lake import ScriptedLogLake, scripted_log_lake
from conformance.logql_script import LogCase, read_logql_script
from conformance.run import Failure, scripts

FEW = ("line_filters.logqltest",)
PATHS = [path for path in scripts([], "logql") if path.suffix == ".logqltest"]


def cases_of(paths: list[Path]) -> list[LogCase]:
    return [case for path in paths for case in read_logql_script(path)]


def check(lake: ScriptedLogLake, cases: list[LogCase]) -> None:
    found = ((case, log_problem(case, lake)) for case in cases)
    failures = [str(Failure(case, reason)) for case, reason in found if reason]
    assert failures == [], f"{len(failures)} of {len(cases)}:\n" + "\n".join(failures)


@pytest.mark.heavy
@pytest.mark.timeout(600)
def test_a_few_scripts_through_push_and_three_workers(tmp_path: Path) -> None:
    cases = cases_of([path for path in PATHS if path.name in FEW])
    if not cases:
        pytest.skip("the shared scripts are not there: ../shared/conformance is absent")
    with scripted_log_lake(tmp_path, cases) as lake:
        check(lake, cases)
        one_of_each = {case.state: case for case in cases if not case.fail}
        assert len(set[str]().union(*map(lake.workers_of, one_of_each.values()))) == WORKERS


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ScriptedLogLake]:
    with scripted_log_lake(tmp_path_factory.mktemp("scripts"), cases_of(PATHS)) as served:
        yield served


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("path", PATHS, ids=lambda path: path.name)
def test_script(lake: ScriptedLogLake, path: Path) -> None:
    check(lake, cases_of([path]))
