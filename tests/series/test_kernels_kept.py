"""Kernels that numba keeps on disk: one number at a time and over arrays, in whatever order processes compile them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

OF_ONE = "from lakerunner.series.math.exponential import log; print(log(8.0))"
OVER_ARRAYS = "import numpy as np; from lakerunner.series.math.arithmetic import log; print(log(np.array([8.0]))[0])"


@pytest.mark.parametrize("order", [(OVER_ARRAYS, OF_ONE), (OF_ONE, OVER_ARRAYS)])
def test_neither_is_taken_for_the_other(order: tuple[str, str], tmp_path: Path) -> None:
    kept = os.environ | {"NUMBA_CACHE_DIR": str(tmp_path)}
    said = [subprocess.run([sys.executable, "-c", code], env=kept, capture_output=True, text=True) for code in order]
    assert [(one.returncode, one.stdout.strip()[:16]) for one in said] == [(0, "2.07944154167983")] * 2
