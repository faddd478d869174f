"""Tests that pass only alone: the list of known ones, and what fails a run."""

from __future__ import annotations

import json
import subprocess
import sys
from datetime import date
from pathlib import Path

import pytest

from flakes import KNOWN, Flake, judge, read_known

REPO = Path(__file__).resolve().parent.parent
KNOWN_LINE = "2026-11-17 | tests/a.py::test_b[x | y] | waits for a clock"


def test_a_list_is_read() -> None:
    known = read_known(f"# a comment\n\n{KNOWN_LINE}\n")
    assert known == {
        "tests/a.py::test_b[x | y]": Flake(date(2026, 11, 17), "tests/a.py::test_b[x | y]", "waits for a clock")
    }


@pytest.mark.parametrize(
    ("line", "error"),
    [
        ("tests/a.py::test_b", "line 1: 'tests/a.py::test_b' is not a date: write YYYY-MM-DD | TEST | REASON"),
        ("2026-11-17 | tests/a.py::test_b", "line 1 lacks a test or a reason: write YYYY-MM-DD | TEST | REASON"),
        ("2026-11-17 | tests/a.py::test_b | ", "line 1 lacks a test or a reason: write YYYY-MM-DD | TEST | REASON"),
    ],
)
def test_a_line_needs_a_date_a_test_and_a_reason(line: str, error: str) -> None:
    with pytest.raises(ValueError) as raised:
        read_known(line)
    assert str(raised.value) == error


def test_known_flakes_pass_and_unknown_ones_fail() -> None:
    known = read_known(KNOWN_LINE)
    known_line = "known flake since 2026-11-17: tests/a.py::test_b[x | y]: waits for a clock"
    assert judge(["tests/a.py::test_b[x | y]"], known) == ([known_line], True)
    unknown_line = (
        "unknown flake: tests/z.py::test_z failed in the crowd and passed alone: mend the test or the product, "
        "or add a line 'YYYY-MM-DD | tests/z.py::test_z | REASON' to tests/flakes.txt"
    )
    assert judge(["tests/z.py::test_z", "tests/a.py::test_b[x | y]"], known) == ([known_line, unknown_line], False)


def test_known_flakes_are_tests_of_this_repo() -> None:
    files = {test.partition("::")[0] for test in read_known(KNOWN.read_text())}
    assert [file for file in sorted(files) if not (REPO / file).is_file()] == []


def test_a_test_that_passes_only_alone_fails_the_run(tmp_path: Path) -> None:
    """As `.ci/run` does it: a first run that fails, a saved list, a second run that passes."""
    (tmp_path / "test_once.py").write_text(
        "from pathlib import Path\n"
        "def test_second_time():\n"
        "    mark = Path(__file__).with_name('mark')\n"
        "    again = mark.exists()\n"
        "    mark.touch()\n"
        "    assert again\n"
    )
    pytest_command = [sys.executable, "-m", "pytest", "-q", "--rootdir", str(tmp_path), "-c", "/dev/null"]
    pytest_command += ["-o", f"cache_dir={tmp_path / 'cache'}", str(tmp_path / "test_once.py")]
    assert subprocess.run(pytest_command, cwd=tmp_path, capture_output=True, check=False).returncode == 1
    failed = tmp_path / "failed.json"
    failed.write_text((tmp_path / "cache/v/cache/lastfailed").read_text())
    assert json.loads(failed.read_text()) == {"test_once.py::test_second_time": True}
    alone = [*pytest_command, "--last-failed", "--last-failed-no-failures", "none"]
    assert subprocess.run(alone, cwd=tmp_path, capture_output=True, check=False).returncode == 0
    judged = subprocess.run(
        [sys.executable, str(REPO / "tests/flakes.py"), str(failed)], capture_output=True, text=True, check=False
    )
    assert (judged.returncode, judged.stdout[: len("unknown flake: test_once.py")]) == (
        1,
        "unknown flake: test_once.py",
    )
