"""Commands that ask a server start fast: they import none of the engines."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest
from click.testing import CliRunner

from lakerunner.cli import cli

HEAVY = ("pyarrow", "numba", "numpy", "duckdb", "pyspark", "sqlglot", "starlette", "uvicorn", "rich", "pygments")
_RUN = """
import json, sys
from lakerunner.cli import cli
try:
    cli(sys.argv[1:], prog_name="lakerunner")
except SystemExit as ended:
    code = ended.code
print(json.dumps([code, sorted(sys.modules)]))
"""
NOBODY = ["--url", "http://127.0.0.1:1", "--key", "k"]  # a port that nobody listens on


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["--help"], 0),
        (["sql", "--help"], 0),
        (["promql", "--help"], 0),
        (["promql", "up", *NOBODY], 1),
        (["promql", "up", "--explain", *NOBODY], 1),
        (["logql", "{}", *NOBODY], 1),
        (["sql", "select 1", *NOBODY], 1),
    ],
    ids=lambda value: " ".join(value[:3]) if isinstance(value, list) else "",
)
def test_no_engine_is_imported(arguments: list[str], code: int) -> None:
    environment = {**os.environ, "NO_PROXY": "*"}
    run = subprocess.run(
        [sys.executable, "-c", _RUN, *arguments], capture_output=True, text=True, check=True, env=environment
    )
    ended, modules = json.loads(run.stdout.splitlines()[-1])
    assert ended == code, run.stderr
    assert [name for name in HEAVY if name in modules] == []
    assert ("httpx" in modules) == bool(code)


def test_the_name_of_a_command_that_is_misspelt_is_shown() -> None:
    result = CliRunner().invoke(cli, ["statu"])
    assert result.exit_code == 2
    assert "Error: No such command 'statu'. Did you mean 'status'?\n" in result.output
