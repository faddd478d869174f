"""One organization storms a lake while another works: `python bench/storm.py --seconds 60`.

Prints the memory bound before the storm, then the p95 of the other's queries idle and under storm, their ratio, and
whether all that it pushed is there once. Exit code 1 if a target is missed: a ratio of 3, no failed request, nothing
lost, no process ended, memory within the bound. All on loopback.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from hostile.storm import run_storm
from hostile.two_tenants import two_tenants


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--seconds", type=float, default=60, help="length of the storm")
    seconds = parser.parse_args().seconds
    with tempfile.TemporaryDirectory() as directory, two_tenants(Path(directory) / "home") as lake:
        figures = run_storm(lake, seconds, print)
    print("\n".join(figures.lines()))
    missed = figures.missed()
    for target in missed:
        print(f"MISSED: {target}")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
