"""`lakerunner demo --once`: everything starts, ingests, answers right and stops; a second run goes on with the data."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path

import pytest

from servers.lake import LAKERUNNER, clean_environment


@pytest.mark.timeout(900)
@pytest.mark.heavy
def test_the_demo_is_right_and_goes_on_where_it_stopped(tmp_path: Path) -> None:
    home = tmp_path / "home"
    first, second = run(home), run(home)
    assert 0 < first < second
    windows = json.loads((home / "demo.json").read_bytes())["windows"]
    assert len(windows) == 1


def run(home: Path) -> int:
    """How many records it says are there, each once."""
    done = subprocess.run(
        [*LAKERUNNER, "demo", "--once", "--home", str(home), "--listen", "127.0.0.1:0", "--minutes", "5"],
        capture_output=True,
        text=True,
        timeout=400,
        env=clean_environment(),
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Traceback" not in done.stderr
    found = re.search(
        r"All answers are correct: (\d+) log records, [1-9]\d* spans and [1-9]\d* metric " r"points", done.stdout
    )
    assert found, done.stdout
    return int(found[1])
