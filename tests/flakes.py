"""Tests that failed in the crowd and passed alone, compared with the list of known ones.

Comes in: the cache file in which pytest keeps the ids of failed tests, saved before they ran again and passed. Goes
out: exit code 0 if `tests/flakes.txt` has all of them, else 1; either way each of them is printed.

    python tests/flakes.py FAILED.json
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import date
from pathlib import Path

KNOWN = Path(__file__).with_name("flakes.txt")


@dataclass(frozen=True)
class Flake:
    """A known flake: since when, its pytest id, and why it is not mended yet."""

    since: date
    test: str
    reason: str


def read_known(text: str) -> dict[str, Flake]:
    """Return the flakes of a list by test id. A line is `DATE | TEST | REASON`; `#` begins a comment."""
    known = {}
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip() or line.startswith("#"):
            continue
        since, _, rest = line.partition(" | ")
        test, _, reason = rest.rpartition(" | ")
        try:
            flake = Flake(date.fromisoformat(since), test.strip(), reason.strip())
        except ValueError:
            raise ValueError(f"line {number}: {since!r} is not a date: write YYYY-MM-DD | TEST | REASON") from None
        if not flake.test or not flake.reason:
            raise ValueError(f"line {number} lacks a test or a reason: write YYYY-MM-DD | TEST | REASON")
        known[flake.test] = flake
    return known


def judge(flaky: Iterable[str], known: dict[str, Flake]) -> tuple[list[str], bool]:
    """Return a line for each test that passed only alone, and whether all of them are known."""
    lines, all_known = [], True
    for test in sorted(flaky):
        if flake := known.get(test):
            lines.append(f"known flake since {flake.since}: {test}: {flake.reason}")
        else:
            all_known = False
            lines.append(
                f"unknown flake: {test} failed in the crowd and passed alone: mend the test or the product, "
                f"or add a line 'YYYY-MM-DD | {test} | REASON' to tests/flakes.txt"
            )
    return lines, all_known


def main(failed: Path) -> int:
    lines, all_known = judge(json.loads(failed.read_text()), read_known(KNOWN.read_text()))
    print("\n".join(lines))
    return 0 if all_known else 1


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
