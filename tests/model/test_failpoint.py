"""A failpoint kills the process where and when it says, and at no other moment."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest

from lakerunner.model.errors import UserError
from lakerunner.model.failpoint import POINTS, arm

_WALK = """
import sys
from lakerunner.model.failpoint import arm, reach
arm(sys.argv[1])
for number in range(4):
    for name in ("before-put", "after-put"):
        reach(name, f"file {number}")
        print(name, number, flush=True)
    arm(sys.argv[1])
"""


def walk(failpoint: str) -> tuple[int, list[str]]:
    done = subprocess.run([sys.executable, "-c", _WALK, failpoint], capture_output=True, text=True, check=False)
    return done.returncode, done.stdout.splitlines()


@pytest.mark.parametrize(
    ("failpoint", "last"),
    [
        ("after-put", "before-put 0"),
        ("after-put:3", "before-put 2"),
        ("before-put:4", "after-put 2"),
        ("before-put@file 2", "after-put 1"),
    ],
)
def test_it_dies_there(failpoint: str, last: str) -> None:
    code, said = walk(failpoint)
    assert (code, said[-1]) == (-signal.SIGKILL, last)


@pytest.mark.parametrize("failpoint", ["", "after-put:5", "before-commit", "after-put@nowhere"])
def test_it_lives(failpoint: str) -> None:
    code, said = walk(failpoint)
    assert (code, len(said)) == (0, 8)


@pytest.mark.parametrize("failpoint", ["after-lunch", "after-put:0", "after-put:x", ":1", "@key"])
def test_what_is_none_is_refused_with_those_there_are(failpoint: str) -> None:
    with pytest.raises(UserError, match=f"unknown failpoint '{failpoint}'.*before-put") as refused:
        arm(failpoint)
    assert all(name in str(refused.value) for name in POINTS)
