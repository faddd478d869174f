"""The wheel: built, installed into a clean environment, and run from there."""

from __future__ import annotations

import ast
import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tomllib
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest

REPO = Path(__file__).resolve().parents[1]
SOURCES = REPO / "src" / "lakerunner"


@pytest.fixture(scope="module")
def clean(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The bin folder of an environment that has the wheel. Its dependencies are those of this environment: to install
    them again would take minutes and show nothing more."""
    made = tmp_path_factory.mktemp("wheel")
    tree = made / "tree"
    tree.mkdir()
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(REPO / name, tree)
    shutil.copytree(REPO / "src", tree / "src", ignore=shutil.ignore_patterns("__pycache__", "*.egg-info"))
    _run(sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", made, tree)
    (wheel,) = made.glob("*.whl")
    environment = made / "environment"
    _run(sys.executable, "-m", "venv", "--without-pip", environment)
    python = environment / "bin" / "python"
    _run(sys.executable, "-m", "pip", "--python", python, "install", "--quiet", "--no-deps", wheel)
    (packages,) = environment.glob("lib/python*/site-packages")
    # Behind its own packages, and as plain paths: the editable install's hook of this environment is not read.
    (packages / "dependencies.pth").write_text(f"{sysconfig.get_path('purelib')}\n")
    return environment / "bin"


def test_the_command_runs_from_the_wheel(clean: Path) -> None:
    version = tomllib.loads((REPO / "pyproject.toml").read_text())["project"]["version"]
    assert _run(clean / "lakerunner", "--version") == f"lakerunner, version {version}\n"
    assert json.loads(_run(clean / "lakerunner", "settings", "query_max_rows", "--json")) == {
        "query_max_rows": {
            "description": "Most rows of one answer.",
            "value": "1000000",
            "default": "1000000",
            "source": "default",
        }
    }


def test_the_wheel_has_every_file_of_the_package(clean: Path) -> None:
    where = Path(_run(clean / "python", "-c", "import lakerunner; print(lakerunner.__path__[0])").strip())
    assert where.is_relative_to(clean.parent)
    assert _names(where) == _names(SOURCES)


def test_every_import_is_a_declared_dependency() -> None:
    dependencies = tomllib.loads((REPO / "pyproject.toml").read_text())["project"]["dependencies"]
    declared = {_normal(re.split(r"[\[<>=~ ]", one)[0]) for one in dependencies}
    distributions = packages_distributions()
    missing = {
        name
        for path in SOURCES.rglob("*.py")
        for name in _imported(path)
        if name not in sys.stdlib_module_names and not declared & set(map(_normal, distributions.get(name, [name])))
    }
    assert missing - {"lakerunner"} == set()


def _normal(distribution: str) -> str:
    return distribution.lower().replace("_", "-")


def _run(*command: str | Path) -> str:
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "LAKERUNNER"))}
    done = subprocess.run(
        [str(one) for one in command], capture_output=True, text=True, cwd="/", env=environment, timeout=300
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def _names(package: Path) -> set[str]:
    files = (path for path in package.rglob("*") if path.is_file() and "__pycache__" not in path.parts)
    return {str(path.relative_to(package)) for path in files}


def _imported(path: Path) -> set[str]:
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {one.name.split(".")[0] for one in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found.add(node.module.split(".")[0])
    return found
