"""The scripts of ../shared/conformance/promql and our own, through the engine: every case passes, or the ledger says
why not."""

from __future__ import annotations

from pathlib import Path

import pytest

from conformance.ledger import Ledger
from conformance.run import LEDGER, SHARED, run, scripts

OWN = sorted(Path(__file__).parent.glob("*.test"))
THEIRS = sorted((SHARED / "promql").glob("*.test"))


def test_the_shared_scripts_are_there() -> None:
    if not SHARED.is_dir():
        pytest.skip("the shared scripts are not there: ../shared/conformance is absent")
    assert len(THEIRS) >= 11


@pytest.mark.parametrize("path", OWN + THEIRS, ids=lambda path: path.name)
def test_script(path: Path) -> None:
    result = run(path)
    assert result.passed + len(result.failures) > 0
    wrong = Ledger.read(LEDGER).wrong({one.case.place: one.reason for one in result.failures}, [path])
    assert wrong == [], "\n".join(map(str, result.failures))


def test_the_ledger_names_cases_that_are_there() -> None:
    places = {case.rpartition(":")[0] for case in Ledger.read(LEDGER).entries}
    assert places <= {path.name for path in scripts([])}
