"""Hostile inputs against a real lake: `make test` runs these, on DuckDB.

One module, so that one server serves all kinds; statements_run.py, requests_run.py, pushes_run.py and promql_run.py
send the inputs and judge the answers. A file of statements whose name ends with `_more` runs with the slow tests.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from hostile.inputs import promql_queries, pushes, raw_requests, statements
from hostile.process_tree import MIB, watched
from hostile.promql_run import run_promql
from hostile.pushes_run import run_pushes
from hostile.requests_run import run_requests
from hostile.statements_run import run_statements
from hostile.two_tenants import Fault, TwoTenants, two_tenants

STATEMENTS = statements()
# What may end a server comes last, so that it does not hide what the others find.
EVERYDAY = sorted((name for name in STATEMENTS if not name.endswith("_more")), key=("growth time_and_depth").find)
MORE = [name for name in STATEMENTS if name.endswith("_more")]
REQUESTS, PUSHES = raw_requests(), pushes()
Recorder = Callable[[str, object], None]
pytestmark = pytest.mark.heavy


@pytest.fixture(scope="module")
def besieged(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TwoTenants]:
    with two_tenants(tmp_path_factory.mktemp("hostile") / "home") as made:
        yield made


def hold(lake: TwoTenants, batch: str, run: Callable[[], list[Fault]]) -> None:
    """Run a batch: no fault in it, none after it, and memory within the bound all the time."""
    bound = lake.memory_bound()
    with watched(lake.tree, bound) as memory:
        faults = [*run(), *lake.faults_after(batch)]
    if memory.highest > bound:
        faults.append(Fault(batch, f"{memory.highest // MIB} MiB are more than the {bound // MIB} of the settings"))
    assert not faults, f"{len(faults)} faults\n" + "\n".join(map(str, faults))


def test_there_are_enough_inputs() -> None:
    assert sum(map(len, STATEMENTS.values())) >= 900
    assert sum(map(len, REQUESTS.values())) >= 60
    assert sum(map(len, PUSHES.values())) >= 60
    assert len(promql_queries()) >= 150


@pytest.mark.parametrize("file", REQUESTS)
def test_requests(besieged: TwoTenants, file: str, record_property: Recorder) -> None:
    record_property("hostile requests", len(REQUESTS[file]))
    hold(besieged, file, lambda: run_requests(besieged, REQUESTS[file]))


def test_promql(besieged: TwoTenants, record_property: Recorder) -> None:
    record_property("hostile PromQL queries", len(promql_queries()))
    hold(besieged, "promql.txt", lambda: run_promql(besieged, promql_queries()))


@pytest.mark.parametrize("file", EVERYDAY)
def test_statements(besieged: TwoTenants, file: str, record_property: Recorder) -> None:
    _hold_statements(besieged, file, record_property)


@pytest.mark.slow
@pytest.mark.parametrize("file", MORE)
def test_more_statements(besieged: TwoTenants, file: str, record_property: Recorder) -> None:
    _hold_statements(besieged, file, record_property)


def _hold_statements(lake: TwoTenants, file: str, record_property: Recorder) -> None:
    given = [one for one in STATEMENTS[file] if one.runs_on("duckdb", whole=True)]
    record_property("hostile statements duckdb", len(given))
    hold(lake, file, lambda: run_statements(lake, given, "duckdb"))


@pytest.mark.parametrize("file", PUSHES)
def test_pushes(besieged: TwoTenants, file: str, record_property: Recorder) -> None:
    """After the statements: what is taken here makes A's tables wide."""
    record_property("hostile pushes", len(PUSHES[file]))
    hold(besieged, file, lambda: run_pushes(besieged, PUSHES[file]))


def test_all_that_b_pushed_is_there_once(besieged: TwoTenants) -> None:
    """The last one: B pushed a line after every batch."""
    besieged.all_of_b_is_there()
