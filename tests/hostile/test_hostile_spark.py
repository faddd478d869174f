"""Hostile statements in Spark: those that a line gives to it, and with the slow tests all of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from hostile.inputs import statements
from hostile.process_tree import MIB, watched
from hostile.statements_run import run_statements
from hostile.two_tenants import Fault, TwoTenants, beside, two_tenants

pytestmark = pytest.mark.timeout(1200)

STATEMENTS = statements()
CHOSEN = [name for name in STATEMENTS if any(one.runs_on("spark", whole=False) for one in STATEMENTS[name])]
# Files of what a limit must stop, so it is short; no statement of theirs is expected to give rows. Those of other files
# have as long as they take, however busy the machine is.
STOPPED = ("growth", "growth_more", "time_and_depth", "time_more")
PATIENT_SECONDS, STRICT_SECONDS = 600, 5
# A start of Spark, a query, and the time after which its process is killed.
ANSWER_SECONDS = 240 + PATIENT_SECONDS
Recorder = Callable[[str, object], None]


@pytest.fixture(scope="module")
def patient(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TwoTenants]:
    more = {"QUERY_SECONDS": str(PATIENT_SECONDS)}
    with two_tenants(tmp_path_factory.mktemp("hostile_spark") / "home", more, ANSWER_SECONDS) as made:
        yield made


@pytest.fixture(scope="module")
def strict(patient: TwoTenants, tmp_path_factory: pytest.TempPathFactory) -> Iterator[TwoTenants]:
    more = {"QUERY_SECONDS": str(STRICT_SECONDS)}
    with beside(patient, tmp_path_factory.mktemp("hostile_strict") / "home", more) as made:
        yield made


def besieged(request: pytest.FixtureRequest, file: str) -> TwoTenants:
    found: TwoTenants = request.getfixturevalue("strict" if file in STOPPED else "patient")
    return found


def test_what_must_be_stopped_is_not_expected_to_give_rows() -> None:
    assert not [one.place for file in STOPPED for one in STATEMENTS[file] if one.expect == "rows"]
    others = [one for file in STATEMENTS for one in STATEMENTS[file] if file not in STOPPED]
    assert not [one.place for one in others if one.expect == "late"]


@pytest.mark.heavy
@pytest.mark.parametrize("file", CHOSEN)
def test_chosen_statements(request: pytest.FixtureRequest, file: str, record_property: Recorder) -> None:
    _hold(besieged(request, file), file, record_property, whole=False)


@pytest.mark.slow
@pytest.mark.parametrize("file", STATEMENTS)
def test_all_statements(request: pytest.FixtureRequest, file: str, record_property: Recorder) -> None:
    _hold(besieged(request, file), file, record_property, whole=True)


def _hold(lake: TwoTenants, file: str, record_property: Recorder, *, whole: bool) -> None:
    given = [one for one in STATEMENTS[file] if one.runs_on("spark", whole=whole)]
    record_property("hostile statements spark", len(given))
    bound = lake.memory_bound(spark=True)
    with watched(lake.tree, bound) as memory:
        faults = [*run_statements(lake, given, "spark"), *lake.faults_after(file)]
    if memory.highest > bound:
        faults.append(Fault(file, f"{memory.highest // MIB} MiB are more than the {bound // MIB} of the settings"))
    assert not faults, f"{len(faults)} faults\n" + "\n".join(map(str, faults))
