"""Golden files: each case is a query between two lines of dashes, then what it becomes. `make golden` rewrites them."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from pathlib import Path

GOLDEN = Path(__file__).parents[1] / "golden"
_CASE = re.compile(r"^---\n(.+?)\n---\n", re.M | re.S)


def files_of(folder: str) -> list[Path]:
    return sorted((GOLDEN / folder).glob("*.txt"))


def queries_of(path: Path) -> list[str]:
    return _CASE.findall(path.read_text())


def check_golden(path: Path, described: Callable[[str], str]) -> None:
    """Compare what each query of the file becomes with what the file states, or rewrite the file."""
    expected = "\n".join(f"---\n{query}\n---\n{described(query)}\n" for query in queries_of(path))
    if os.environ.get("GOLDEN") == "rewrite":
        path.write_text(expected)
    assert path.read_text() == expected
