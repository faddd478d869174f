"""A minute of storm by A: B notices little, loses nothing, and memory stays within the bound."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from hostile.storm import run_storm
from hostile.two_tenants import two_tenants

SECONDS = float(os.environ.get("STORM_SECONDS", "60"))


@pytest.mark.slow
def test_b_works_through_a_storm(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with two_tenants(tmp_path / "home") as lake, capsys.disabled():
        figures = run_storm(lake, SECONDS, print)
        print("\n".join(figures.lines()))
    assert figures.missed() == []
