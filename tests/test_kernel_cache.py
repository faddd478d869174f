"""Machine code on disk: that of other sources is never run, and processes that need the same compile it once."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import lakerunner

ENVIRONMENT = {name: value for name, value in os.environ.items() if not name.startswith("NUMBA_")}

MIDDLE_OF_A_BUCKET = "from lakerunner.series.histograms.quantile import _inside; print(_inside(1.0, 4.0, 0.5, 0))"

KERNEL = """
import numpy as np
from lakerunner.kernel_cache import njit
from lakerunner.series import sample_scale
from lakerunner.series.sample_weight import WEIGHT

@njit(cache=True)
def weigh(pair):
    return sample_scale.scale(pair.first) * WEIGHT

@njit(cache=True)
def total(values):
    result = values[0]
    for index in range(1, len(values)):
        result += sample_scale.scale(values[index])
    return result
"""
SCALE = """
from lakerunner.kernel_cache import njit

@njit(cache=True)
def scale(value):
    return value * 10
"""
PAIR = """
from typing import NamedTuple

class Pair(NamedTuple):
    first: int
    second: int
"""
SAMPLE = {
    "sample_kernel": KERNEL,
    "sample_scale": SCALE,
    "sample_pair": PAIR,
    "sample_weight": "from lakerunner.series.sample_unit import UNIT\nWEIGHT = UNIT * 3\n",
    "sample_unit": "UNIT = 1\n",
}
WEIGH = """
from lakerunner.series.sample_kernel import weigh
from lakerunner.series.sample_pair import Pair
print(weigh(Pair(first=1, second=2)), len(weigh.stats.cache_misses))
"""
TOTAL = """
from lakerunner.series.sample_kernel import np, total
print(total(np.arange(1000)), len(total.stats.cache_misses))
"""


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the sources with some small kernels, of which `weigh` is compiled into a cache of its own."""
    ours = Path(lakerunner.__file__).parent
    place = tmp_path_factory.mktemp("compiled") / "lakerunner"
    copy = Path(shutil.copytree(ours, place, ignore=shutil.ignore_patterns("__pycache__")))
    for name, source in SAMPLE.items():
        file = copy / "series" / f"{name}.py"
        file.write_text(source)
        os.utime(file, (0, 0))  # so that Python sees a change by the next test in the same second
    assert [run(copy, WEIGH), run(copy, WEIGH)] == ["30 1", "30 0"]
    return copy


@pytest.fixture
def package(compiled: Path, tmp_path: Path) -> Path:
    """A copy of `compiled` to be changed; the cache has no paths in it."""
    return Path(shutil.copytree(compiled, tmp_path / "lakerunner"))


def start(package: Path, code: str) -> subprocess.Popen[str]:
    environment = ENVIRONMENT | {"PYTHONPATH": str(package.parent)}
    command = [sys.executable, "-c", code]
    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def run(package: Path, code: str) -> str:
    """Return what this code prints in a new process that imports the package from there."""
    process = start(package, code)
    output, errors = process.communicate(timeout=250)
    assert process.returncode == 0, errors
    return output.strip()


def replace(file: Path, old: str, new: str) -> None:
    text = file.read_text()
    assert text.count(old) == 1
    file.write_text(text.replace(old, new))


def test_a_kernel_of_queries_is_compiled_again_when_one_that_it_calls_in_another_file_changes(package: Path) -> None:
    assert run(package, MIDDLE_OF_A_BUCKET) == "2.0"
    signature = "def exp2(x: Any) -> Any:"
    replace(package / "series" / "math" / "exponential.py", signature, f"{signature}\n    return 7.0")
    assert run(package, MIDDLE_OF_A_BUCKET) == "7.0"


@pytest.mark.parametrize(
    ("file", "old", "new", "answer"),
    [
        ("sample_scale", "value * 10", "value * 20", "60 1"),
        ("sample_unit", "UNIT = 1", "UNIT = 2", "60 1"),
        ("sample_pair", "first: int\n    second: int", "second: int\n    first: int", "30 1"),
    ],
    ids=["kernel", "constant of a constant", "type of an argument that the kernel does not import"],
)
def test_what_a_kernel_uses_of_other_files_is_never_out_of_date(
    package: Path, file: str, old: str, new: str, answer: str
) -> None:
    replace(package / "series" / f"{file}.py", old, new)
    assert run(package, WEIGH) == answer


def test_a_source_that_the_kernel_does_not_import_changes_nothing(package: Path) -> None:
    (package / "series" / "sample_other.py").write_text("UNIT = 2")
    (package / "series" / "sample_kernel.py").touch()
    assert run(package, WEIGH) == "30 0"


@pytest.mark.parametrize("damage", [lambda data: b"", lambda data: data[: len(data) // 2]], ids=["empty", "half"])
@pytest.mark.parametrize("ending", ["nbi", "nbc"])
def test_a_damaged_file_is_written_again(package: Path, ending: str, damage: Callable[[bytes], bytes]) -> None:
    files = list(package.rglob(f"sample_kernel*.{ending}"))
    assert len(files) == 1
    files[0].write_bytes(damage(files[0].read_bytes()))
    assert [run(package, WEIGH), run(package, WEIGH)] == ["30 1", "30 0"]


def test_two_processes_compile_a_kernel_once(package: Path) -> None:
    processes = [start(package, TOTAL) for _ in range(2)]
    answers = sorted(process.communicate(timeout=250)[0] for process in processes)
    assert answers == ["4995000 0\n", "4995000 1\n"]
