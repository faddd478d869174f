"""Our own scripts expect what a real Prometheus answers."""

from __future__ import annotations

from pathlib import Path

import pytest

from conformance.peer import OURS, failures_of
from conformance.script import read_script
from servers.peers import peer

OWN = sorted(path for path in Path(__file__).parent.glob("*.test") if path.name not in OURS)


@pytest.mark.slow
@pytest.mark.parametrize("path", OWN, ids=lambda path: path.name)
def test_prometheus_answers_as_the_script_expects(path: Path, tmp_path: Path) -> None:
    peer("prometheus")
    cases = [case for case in read_script(path) if case.starts_are_unknown]
    assert [str(failure) for failure in failures_of(cases, tmp_path)] == []
