"""Hostile statements in Spark: those that a line gives to it, and with the slow tests all of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import httpx
import pytest

from hostile.inputs import statements
from hostile.process_tree import MIB, watched
from hostile.statements_run import run_statements
from hostile.two_tenants import Fault, TwoTenants, two_tenants
from servers.lake import wait_until

STATEMENTS = statements()
CHOSEN = [name for name in STATEMENTS if any(one.runs_on("spark", whole=False) for one in STATEMENTS[name])]
Recorder = Callable[[str, object], None]


@pytest.fixture(scope="module")
def besieged(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TwoTenants]:
    """A lake whose session for queries is open: the first questions open it, and may take longer than a query may."""
    with two_tenants(tmp_path_factory.mktemp("hostile_spark") / "home", {"QUERY_SECONDS": "12"}) as made:

        def answered() -> bool:
            try:
                answer = made.ask(made.a, "SELECT count(*) AS n FROM logs", engine="spark")
            except httpx.TimeoutException:
                return False
            return bool(answer.json().get("rows") == [{"n": made.a.rows}])

        wait_until(answered, "an answer of Spark", 120, made.lake.process.text)
        yield made


@pytest.mark.heavy
@pytest.mark.parametrize("file", CHOSEN)
def test_chosen_statements(besieged: TwoTenants, file: str, record_property: Recorder) -> None:
    _hold(besieged, file, record_property, whole=False)


@pytest.mark.slow
@pytest.mark.parametrize("file", STATEMENTS)
def test_all_statements(besieged: TwoTenants, file: str, record_property: Recorder) -> None:
    _hold(besieged, file, record_property, whole=True)


def _hold(lake: TwoTenants, file: str, record_property: Recorder, *, whole: bool) -> None:
    given = [one for one in STATEMENTS[file] if one.runs_on("spark", whole=whole)]
    record_property("hostile statements spark", len(given))
    bound = lake.memory_bound(spark=True)
    with watched(lake.tree, bound) as memory:
        faults = [*run_statements(lake, given, "spark"), *lake.faults_after(file)]
    if memory.highest > bound:
        faults.append(Fault(file, f"{memory.highest // MIB} MiB are more than the {bound // MIB} of the settings"))
    assert not faults, f"{len(faults)} faults\n" + "\n".join(map(str, faults))
