"""The house rules a script can see: sizes, names, licence, locks without addresses."""

from __future__ import annotations

import ast
import re
from collections import Counter, defaultdict
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

REPO = Path(__file__).resolve().parents[1]
ROOTS = [REPO / "src" / "lakerunner", REPO / "demo" / "src" / "lakerunner_demo"]
SOURCES = sorted(path for root in ROOTS for path in root.rglob("*.py"))
MODULE_LINES = 500
FUNCTION_LINES = 60
PARAMETERS = 7
DEPTH = 3
SAME_NAMES = 2
SAME_LINES = 20


def functions(path: Path) -> list[ast.FunctionDef | ast.AsyncFunctionDef]:
    tree = ast.parse(path.read_text())
    return [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]


def lines_of(node: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    return (node.end_lineno or node.lineno) - node.lineno + 1


def test_modules_are_short() -> None:
    long = {
        str(path.relative_to(REPO)): n for path in SOURCES if (n := len(path.read_text().splitlines())) > MODULE_LINES
    }
    assert long == {}


def test_functions_are_short_and_take_few_parameters() -> None:
    long = [
        f"{path.relative_to(REPO)}:{node.name} has {lines_of(node)} lines"
        for path in SOURCES
        for node in functions(path)
        if lines_of(node) > FUNCTION_LINES
    ]
    wide = [
        f"{path.relative_to(REPO)}:{node.name} takes {len(node.args.args)} parameters"
        for path in SOURCES
        for node in functions(path)
        if len(node.args.args) > PARAMETERS
    ]
    assert long + wide == []


def test_every_module_says_what_it_is() -> None:
    silent = [str(path.relative_to(REPO)) for path in SOURCES if not ast.get_docstring(ast.parse(path.read_text()))]
    assert silent == []


def test_names_say_something() -> None:
    empty = {"utils", "util", "common", "helpers", "helper", "misc"}
    assert [str(path) for path in SOURCES if {part.removesuffix(".py") for part in path.parts} & empty] == []


@pytest.mark.parametrize("root", ROOTS, ids=lambda root: root.name)
def test_names_are_used_twice_at_most(root: Path) -> None:
    """A third module or class of one name means that the domain ran out of words: docs/glossary.md has more."""
    sources = [path for path in SOURCES if path.is_relative_to(root)]
    modules = Counter(path.stem for path in sources if path.stem not in {"__init__", "__main__"})
    classes = Counter(
        node.name
        for path in sources
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.ClassDef)
    )
    assert {name: times for name, times in modules.items() if times > SAME_NAMES} == {}
    assert {name: times for name, times in classes.items() if times > SAME_NAMES} == {}


def test_no_lines_stand_in_two_places() -> None:
    """Blank lines and imports aside, no run of this many lines is written twice."""
    places: dict[tuple[str, ...], list[str]] = defaultdict(list)
    for path in SOURCES:
        numbered = [
            (number, line.strip())
            for number, line in enumerate(path.read_text().splitlines(), 1)
            if line.strip() and not line.startswith(("import ", "from "))
        ]
        for start in range(len(numbered) - SAME_LINES + 1):
            run = numbered[start : start + SAME_LINES]
            places[tuple(line for _, line in run)].append(f"{path.relative_to(REPO)}:{run[0][0]}")
    assert [found for found in places.values() if len(found) > 1] == []


def test_folders_are_three_deep_at_most() -> None:
    deep = [path for root in ROOTS for path in root.rglob("*.py") if len(path.relative_to(root).parts) > DEPTH]
    assert deep == []


def test_kernels_are_kept_in_our_cache() -> None:
    """numba's own cache would run machine code of older sources (kernel_cache.py)."""
    decorators = {"numba.jit", "numba.njit", "numba.vectorize", "numba.guvectorize", "numba.cfunc"}
    found = [str(path.relative_to(REPO)) for path in SOURCES if decorators & set(_imported(path))]
    assert found == []


def test_series_names_no_language() -> None:
    """What a language gives the evaluator is one value (series/language.py)."""
    word = re.compile(r"promql|prometheus|logql|loki|traceql|stale", re.I)
    found = [
        f"{path.relative_to(REPO)}:{number}: {line.strip()}"
        for path in SOURCES
        if path.is_relative_to(REPO / "src" / "lakerunner" / "series")
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if word.search(line)
    ]
    assert found == []


@pytest.mark.parametrize(
    "package",
    [
        "api",
        "bus",
        "commands",
        "lakeql",
        "logql",
        "model",
        "objects",
        "pipeline",
        "promql",
        "query",
        "series",
        "services",
    ],
)
def test_folders_of_a_package_import_one_way(package: str) -> None:
    """The modules of the package's own folder count as one more of its folders."""
    root = REPO / "src" / "lakerunner" / package
    needs: dict[str, set[str]] = {}
    for path in sorted(root.rglob("*.py")):
        own = _folder(path.relative_to(root).parts[:-1])
        for name in _imported(path):
            if name.startswith(f"lakerunner.{package}."):
                parts = name.split(".")[2:]
                other = _folder(parts[:1] if (root / parts[0]).is_dir() else ())
                needs.setdefault(own, set()).update({other} - {own})
    try:
        TopologicalSorter(needs).prepare()
    except CycleError as error:
        pytest.fail(f"folders of {package} import each other in a circle: {' > '.join(error.args[1])}")


def _folder(parts: tuple[str, ...] | list[str]) -> str:
    return parts[0] if parts else "(its own folder)"


def _imported(path: Path) -> list[str]:
    """The modules that it imports, wherever it does so."""
    found = []
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module:
            found += [f"{node.module}.{one.name}" for one in node.names]
        elif isinstance(node, ast.Import):
            found += [one.name for one in node.names]
    return found


def test_the_lock_is_pinned_hashed_and_names_no_host() -> None:
    lock = (REPO / "requirements.lock").read_text()
    assert "://" not in lock
    assert not re.search(r"^--", lock, re.M)
    entries = re.findall(r"^([a-zA-Z0-9_.-]+)==\S+.*?((?:\n    --hash=sha256:[0-9a-f]{64}.*)+)", lock, re.M)
    names = re.findall(r"^([a-zA-Z0-9_.-]+)==", lock, re.M)
    assert len(entries) == len(names) > 40


def test_the_licence_is_apache_2() -> None:
    assert "Apache License" in (REPO / "LICENSE").read_text()
    assert 'license = "Apache-2.0"' in (REPO / "pyproject.toml").read_text()
