"""CONTRIBUTING's guides, followed to the letter in a copy of the source: what they name is all that it takes."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

REPO = Path(__file__).resolve().parents[1]
PACKAGES = ("kernel_cache.py", "model", "plan", "series", "promql")
ASK = """
from lakerunner.promql.language import PROMQL
from lakerunner.promql.parse import parse
from lakerunner.promql.printer import expression_text
from lakerunner.promql.resolve import resolve
from lakerunner.series.evaluation.evaluate import evaluate
from lakerunner.series.values import Steps

expression = parse({query!r})
value, notes = evaluate(resolve(expression, Steps(0, 0), True), Steps(0, 0), None, PROMQL)
print(expression_text(expression))
print([dict(labels) for labels in value.labels], value.values.tolist())
"""


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """Return a copy of the packages that a query language is made of."""
    root = tmp_path / "lakerunner"
    shutil.copytree(REPO / "src" / "lakerunner", root, ignore=_others)
    return root


def _others(folder: str, names: list[str]) -> list[str]:
    top = Path(folder).name == "lakerunner"
    return [name for name in names if name == "__pycache__" or (top and name not in (*PACKAGES, "__init__.py"))]


def asked(copy: Path, query: str) -> list[str]:
    """Return how the query is printed again, and what it gives."""
    environment = os.environ | {"PYTHONPATH": str(copy.parent)}
    command = [sys.executable, "-c", ASK.format(query=query)]
    done = subprocess.run(command, env=environment, cwd=copy.parent, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def insert(path: Path, before: str, line: str) -> None:
    text = path.read_text()
    assert text.count(before) == 1, f"{before!r} in {path}"
    path.write_text(text.replace(before, line + before))


TRIPLED = '''"""tripled: a function for this test."""

from lakerunner.series.functions.arguments import elementwise

TRIPLED = (elementwise("tripled", lambda values: 3 * values),)
'''


def test_a_promql_function_is_a_file_and_a_line(copy: Path) -> None:
    functions = copy / "promql" / "functions"
    (functions / "tripled.py").write_text(TRIPLED)
    insert(functions / "__init__.py", "_TABLES: tuple", "from lakerunner.promql.functions.tripled import TRIPLED\n\n")
    insert(functions / "__init__.py", "    TRIGONOMETRY,\n)", "    TRIPLED,\n")
    assert asked(copy, "tripled( vector(14) )") == ["tripled(vector(14))", "[{}] [[42.0]]"]


PRODUCT = '''"""product: an aggregation for this test."""

import numpy as np

from lakerunner.series.aggregations.aggregation import Aggregation, groups_of
from lakerunner.series.values import Vector


def _evaluate(node, vector, parameter, notes):
    groups = groups_of(node, vector)
    values = np.ones((len(groups), vector.values.shape[1]))
    np.multiply.at(values, groups.indexes, vector.values)
    return Vector(groups.labels, values, np.ones(values.shape, bool))


PRODUCT = Aggregation("product", _evaluate)
'''


def test_an_aggregation_is_a_file_and_a_line(copy: Path) -> None:
    aggregations = copy / "series" / "aggregations"
    (aggregations / "product.py").write_text(PRODUCT)
    line = "from lakerunner.series.aggregations.product import PRODUCT\n"
    insert(aggregations / "__init__.py", "from lakerunner.series.aggregations.subsets import", line)
    insert(aggregations / "__init__.py", "        COUNT_VALUES,\n", "        PRODUCT,\n")
    assert asked(copy, "product by(pod) (vector(42))") == ["product by (pod) (vector(42))", "[{}] [[42.0]]"]
