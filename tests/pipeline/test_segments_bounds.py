"""The jitted code once more with every array access checked: numba itself does not look."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

SUITES = (
    "test_segments_random.py",
    "test_segments_make.py",
    "test_attributes_shred.py",
    "test_read_wire.py",
    "test_metrics_random.py",
    "test_metrics_make.py",
    "test_traces_random.py",
    "test_traces_make.py",
    "test_traces_refused.py",
    "test_steps_text.py",
    "test_read_remote_write.py",
    "test_remote_write_series.py",
)

# numba checks indices, and these take the place of the functions that go to memory without an index.
CHECKED = """
import sys
import numba
import numpy as np
import pytest
from lakerunner.pipeline.read import memory

@numba.njit
def load(data, at):
    word = np.uint64(0)
    for place in range(8):
        if at + place < 0 or at + place >= len(data):
            raise IndexError("load")
        word |= np.uint64(data[at + place]) << np.uint64(8 * place)
    return word

@numba.njit
def store(out, at, word):
    for place in range(8):
        if at + place < 0 or at + place >= len(out):
            raise IndexError("store")
        out[at + place] = np.uint8((word >> np.uint64(8 * place)) & np.uint64(255))

memory.load, memory.store = load, store

@numba.njit
def beyond(data):
    return data[len(data)]

with pytest.raises(IndexError):
    beyond(np.zeros(3))
with pytest.raises(IndexError):
    memory.same(np.zeros(12, np.uint8), 0, 8, 5)
sys.exit(pytest.main(["-q", "-p", "no:cacheprovider", *sys.argv[1:]]))
"""


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_no_kernel_leaves_its_arrays(tmp_path: Path) -> None:
    here = Path(__file__).parent
    environment = {**os.environ, "NUMBA_BOUNDSCHECK": "1", "NUMBA_CACHE_DIR": str(tmp_path)}
    command = [sys.executable, "-c", CHECKED, *(str(here / suite) for suite in SUITES)]
    run = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=880, check=False)
    assert run.returncode == 0, run.stdout[-4000:] + run.stderr[-2000:]
    assert "[100%]" in run.stdout
