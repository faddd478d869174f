"""The documentation names files, folders and settings that exist."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from lakerunner.settings import Settings

REPO = Path(__file__).resolve().parents[1]
PAGES = sorted([*REPO.glob("*.md"), *(REPO / "docs").rglob("*.md")])
# A word in backticks with a slash inside, or the name of a source file or page.
_PATH = re.compile(r"`([A-Za-z0-9_.*/-]*(?:[a-z_0-9*]/[a-z_0-9*]|\.(?:py|md|sql|toml|lock))[A-Za-z0-9_.*/-]*)`")
_FIRST = ("api", "bench", "bus", "commands", "demo", "docs", "index", "lakeql", "model", "objects", "pipeline", "plan")
_ROOTS = (*_FIRST, "promql", "query", "series", "services", "src", "tests", "transcode", "read", "steps")
_NAMELESS = re.compile(r"NAME|NNNN")  # stands for a name that the reader chooses


@cache
def _files() -> tuple[str, ...]:
    hidden = {".git", ".venv", ".cache", "__pycache__", ".mypy_cache", ".ruff_cache", ".pytest_cache"}
    found = [path.relative_to(REPO) for path in REPO.rglob("*") if not hidden & set(path.relative_to(REPO).parts)]
    return tuple(f"/{path}{'/' if (REPO / path).is_dir() else ''}" for path in found)


def _exists(name: str) -> bool:
    """Whether a file or folder of the repo ends with this path. Pages name modules from their package on."""
    ending = re.escape(name.removeprefix("./")).replace(r"\*", "[^/]*")
    wanted = re.compile(rf"/{ending}(?:[-0-9a-z]*\.md)?/?$" if name.startswith("docs/decisions/") else rf"/{ending}/?$")
    return any(wanted.search(one) for one in _files())


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(REPO)))
def test_every_path_on_the_page_exists(page: Path) -> None:
    named = set(_PATH.findall(page.read_text()))
    ours = {one for one in named if one.endswith(".py") or one.split("/")[0] in _ROOTS}
    assert sorted(one for one in ours if not _NAMELESS.search(one) and not _exists(one)) == []


def test_every_limit_names_a_setting_or_a_file_that_exists() -> None:
    table = (REPO / "ARCHITECTURE.md").read_text().split("## Limits, and where they stand")[1]
    places = [row.split("|")[3] for row in table.splitlines() if row.startswith("| ")][1:]
    assert len(places) > 50
    named = {name for place in places for name in re.findall(r"`([^`]+)`", place)}
    settings = set(Settings.__dataclass_fields__)
    assert sorted(name for name in named if name not in settings and not _exists(name)) == []
    assert [place for place in places if "`" not in place] == []


_HOP = re.compile(r"^\| (\d+) \| (\S+) `([\w.]+)` \| [DLRFSW] \|$", re.MULTILINE)


@cache
def _functions(path: Path) -> frozenset[str]:
    """The functions of a module, and the methods of its classes behind the class and a dot."""

    def names(nodes: list[ast.stmt], prefix: str) -> Iterator[str]:
        for node in nodes:
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                yield prefix + node.name
            elif isinstance(node, ast.ClassDef):
                yield from names(node.body, f"{prefix}{node.name}.")

    return frozenset(names(ast.parse(path.read_text()).body, ""))


def test_every_hop_of_the_walks_exists_and_is_counted() -> None:
    page = (REPO / "docs" / "walks.md").read_text()
    summary, *walks = page.split("\n## ")
    counts = {}
    for walk in walks:
        hops = _HOP.findall(walk)
        assert [int(number) for number, _, _ in hops] == list(range(1, len(hops) + 1))
        source = REPO / "src" / "lakerunner"
        assert [f"{path} {name}" for _, path, name in hops if name not in _functions(source / path)] == []
        title = walk.partition("\n")[0]
        counts[title[0].lower() + title[1:]] = len(hops)
    assert {name: int(count) for name, count in re.findall(r"^\| (a .*?) \| (\d+) \|", summary, re.MULTILINE)} == counts
