"""The wheels, of the product and of its demo shop: built, installed into clean environments, and run from there."""

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
DEMO_SOURCES = REPO / "demo" / "src" / "lakerunner_demo"


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return _wheel(REPO, tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="module")
def clean(tmp_path_factory: pytest.TempPathFactory, wheel: Path) -> Path:
    """The bin folder of an environment that has the wheel of the product alone."""
    return _environment(tmp_path_factory.mktemp("clean"), wheel)


@pytest.fixture(scope="module")
def with_demo(tmp_path_factory: pytest.TempPathFactory, wheel: Path) -> Path:
    """The bin folder of an environment that has the wheels of the product and of the demo shop."""
    demo = _wheel(REPO / "demo", tmp_path_factory.mktemp("demo_wheel"))
    return _environment(tmp_path_factory.mktemp("with_demo"), wheel, demo)


def _wheel(source: Path, made: Path) -> Path:
    tree = made / "tree"
    tree.mkdir()
    for name in ("pyproject.toml", "README.md"):
        shutil.copy(source / name, tree)
    shutil.copy(REPO / "LICENSE", tree)
    shutil.copytree(source / "src", tree / "src", ignore=shutil.ignore_patterns("__pycache__", "*.egg-info"))
    _run(sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", made, tree)
    (wheel,) = made.glob("*.whl")
    return wheel


def _environment(place: Path, *wheels: Path) -> Path:
    """The bin folder of a new environment with these wheels. Their dependencies are those of this environment: to
    install them again would take minutes and show nothing more."""
    environment = place / "environment"
    _run(sys.executable, "-m", "venv", "--without-pip", environment)
    python = environment / "bin" / "python"
    _run(sys.executable, "-m", "pip", "--python", python, "install", "--quiet", "--no-deps", "--no-compile", *wheels)
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


@pytest.mark.parametrize("sources", [SOURCES, DEMO_SOURCES], ids=lambda path: path.name)
def test_the_wheel_has_every_file_of_the_package(with_demo: Path, sources: Path) -> None:
    found = _run(with_demo / "python", "-c", f"import {sources.name} as package; print(package.__path__[0])")
    where = Path(found.strip())
    assert where.is_relative_to(with_demo.parent)
    assert _names(where) == _names(sources)


def test_without_the_demo_shop_its_command_shows_how_to_get_it(clean: Path, tmp_path: Path) -> None:
    done = _done(clean / "lakerunner", "demo", "--home", tmp_path / "lake")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == "error: the demo shop is not installed: run `pip install 'lakerunner[demo]'`\n"
    assert list(tmp_path.iterdir()) == []
    assert _run(clean / "lakerunner", "demo", "--help").startswith("Usage: lakerunner demo [OPTIONS]\n")


def test_with_the_demo_shop_its_command_starts(with_demo: Path, tmp_path: Path) -> None:
    done = _done(with_demo / "lakerunner", "demo", "--home", tmp_path / "lake", "--store", "s4://lake")
    assert (done.returncode, done.stdout) == (2, "")
    assert "  store = 's4://lake' (option --store) cannot be used: " in done.stderr


def test_the_extra_is_the_demo_shop_of_the_same_version() -> None:
    product, demo = (tomllib.loads((REPO / path / "pyproject.toml").read_text())["project"] for path in (".", "demo"))
    assert product["optional-dependencies"] == {"demo": [f"{demo['name']}=={product['version']}"]}
    assert demo["version"] == product["version"]
    assert f"lakerunner=={product['version']}" in demo["dependencies"]


@pytest.mark.parametrize("sources", [SOURCES, DEMO_SOURCES], ids=lambda path: path.name)
def test_every_import_is_a_declared_dependency(sources: Path) -> None:
    project = tomllib.loads((sources.parents[1] / "pyproject.toml").read_text())["project"]
    extras = [one for extra in project.get("optional-dependencies", {}).values() for one in extra]
    declared = {_normal(re.split(r"[\[<>=~ ]", one)[0]) for one in (*project["dependencies"], *extras, project["name"])}
    distributions = packages_distributions()
    missing = {
        name
        for path in sources.rglob("*.py")
        for name in _imported(path)
        if name not in sys.stdlib_module_names and not declared & set(map(_normal, distributions.get(name, [name])))
    }
    assert missing == set()


def _normal(distribution: str) -> str:
    return distribution.lower().replace("_", "-")


def _run(*command: str | Path) -> str:
    done = _done(*command)
    assert done.returncode == 0, done.stderr
    return done.stdout


def _done(*command: str | Path) -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "LAKERUNNER"))}
    return subprocess.run(
        [str(one) for one in command], capture_output=True, text=True, cwd="/", env=environment, timeout=300
    )


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
