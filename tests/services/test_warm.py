"""Kernels are compiled once on a machine, beside the service that needs them, and compiling ends with the service."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import psutil

ENVIRONMENT = {name: value for name, value in os.environ.items() if not name.startswith("NUMBA_")}

COMPILING = """
import sys, time
from lakerunner.kernel_cache import is_compiling
from lakerunner.services.runtime import Runtime
from lakerunner.services.warm import compile_aside
runtime = Runtime("test")
assert not is_compiling()
compile_aside(runtime, ["ingest", "query-api"], print)
print(is_compiling(), flush=True)
if sys.argv[1:] == ["hang"]:
    time.sleep(600)
runtime.shut_down()
print(is_compiling(), flush=True)
"""


def test_compiling_ends_when_the_process_stops(tmp_path: Path) -> None:
    environment = ENVIRONMENT | {"NUMBA_CACHE_DIR": str(tmp_path)}
    run = subprocess.run(
        [sys.executable, "-c", COMPILING], capture_output=True, text=True, env=environment, timeout=250, check=True
    )
    said, *compiling = run.stdout.splitlines()
    assert said.startswith("compiling kernels for the first start: ")
    assert compiling == ["True", "False"], run.stderr


def test_compiling_ends_when_the_process_is_killed(tmp_path: Path) -> None:
    environment = ENVIRONMENT | {"NUMBA_CACHE_DIR": str(tmp_path)}
    command = [sys.executable, "-c", COMPILING, "hang"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as run:
        assert run.stdout is not None
        assert run.stdout.readline().startswith("compiling kernels")
        assert run.stdout.readline() == "True\n"
        compilers = psutil.Process(run.pid).children()
        assert compilers
        run.kill()
    deadline = time.monotonic() + 60
    while any(compiler.is_running() and compiler.status() != psutil.STATUS_ZOMBIE for compiler in compilers):
        assert time.monotonic() < deadline
        time.sleep(0.05)
