"""A sweeper in a process of its own that is killed at a failpoint, as a power cut would.

python dying_sweeper.py '{"failpoint": "after-sweep:2", "index": URL, "store": URL, "options": [...], "now_ns": N, ...}'
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from lakerunner.index.index import Index
from lakerunner.model.failpoint import arm
from lakerunner.objects.open import StoreAddress, open_store
from lakerunner.services.sweeper import sweep
from suites.small_pages import small_chores


def main() -> int:
    order = json.loads(sys.argv[1])
    arm(order["failpoint"])
    index = Index.open(order["index"], connections=2)
    address = StoreAddress(order["store"], tuple((name, value) for name, value in order["options"]))
    chores = small_chores(index, open_store(address), address, order["retention"])
    with index.sweep.alone("a test") as lock:
        assert lock is not None
        report = sweep(chores, order["now_ns"], lambda *_: None, lock.held)
    print(report.failures)
    return 0


if __name__ == "__main__":
    sys.exit(main())
