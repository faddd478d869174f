"""The scripts and tables of ../shared/conformance/logql and our own, through the engine: every case passes, or the
ledger says why not."""

from __future__ import annotations

from pathlib import Path

import pytest

from conformance.ledger import Ledger
from conformance.run import LEDGER, SHARED, run, scripts

PATHS = scripts([], "logql")


def test_the_shared_scripts_and_tables_are_there() -> None:
    if not SHARED.is_dir():
        pytest.skip("the shared scripts are not there: ../shared/conformance is absent")
    names = {path.name for path in PATHS}
    assert len([name for name in names if name.endswith(".logqltest")]) >= 4
    assert len([name for name in names if name.endswith(".jsonl")]) >= 9


@pytest.mark.parametrize("path", PATHS, ids=lambda path: path.name)
@pytest.mark.timeout(600)
def test_script(path: Path) -> None:
    result = run(path)
    assert result.passed + len(result.failures) > 0
    wrong = Ledger.read(LEDGER).wrong({one.case.place: one.reason for one in result.failures}, [path])
    assert wrong == [], "\n".join(map(str, result.failures))
