"""After warm_ingest() nothing is left to compile: a service is as fast with its first objects as with its last."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

SCRIPT = """
import os
import sys
from numba.core.dispatcher import Dispatcher
from lakerunner.pipeline.warm import warm_ingest

def compiled():
    modules = [module for name, module in sys.modules.items() if name.startswith("lakerunner.pipeline")]
    jitted = {value for module in modules for value in vars(module).values() if isinstance(value, Dispatcher)}
    assert len(jitted) > 30
    return {function.py_func.__qualname__: len(function.signatures) for function in jitted}

warm_ingest()
before = compiled()
sys.path.insert(0, sys.argv[1])
from pipeline import test_attributes_shred, test_metrics_make, test_segments_make, test_steps_severity, test_traces_make
for module in (test_attributes_shred, test_metrics_make, test_segments_make, test_steps_severity, test_traces_make):
    for name, test in vars(module).items():
        if name.startswith("test_") and not test.__code__.co_argcount:
            test()
test_segments_make.test_many_hours_share_48_segments_of_neighbours(200, 48)
after = compiled()
assert before == after, {name: (before[name], after[name]) for name in before if before[name] != after[name]}
sys.stdout.flush()
os._exit(0)  # threads of libraries may end an interpreter that is ending, which says nothing of this
"""


def test_nothing_is_compiled_after_warming_up() -> None:
    command = [sys.executable, "-c", SCRIPT, str(Path(__file__).parents[1])]
    run = subprocess.run(command, capture_output=True, text=True, timeout=250, check=False)
    assert run.returncode == 0, run.stderr[-3000:]
