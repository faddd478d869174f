"""Which rows the live segments hold, as digests in a sorted file: as many as there are, in no more memory than the
system has to spare for it."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import numpy as np
import numpy.typing as npt

from lakerunner.services.checks.row_digest import Digests

Counts = npt.NDArray[np.int64]


class HeldRows:
    def __init__(self, path: Path, digests: Iterable[Digests]) -> None:
        with path.open("wb") as file:
            for some in digests:
                file.write(some.tobytes())
        self._sorted: Digests = np.zeros(0, np.uint64)
        if path.stat().st_size:  # an empty file cannot be mapped
            self._sorted = np.memmap(path, np.uint64, "r+")
            self._sorted.sort()

    def counts(self, digests: Digests) -> Counts:
        """Return how many rows of the live segments have each of these digests."""
        ends = (np.searchsorted(self._sorted, digests, side) for side in ("left", "right"))
        first, last = ends
        return (last - first).astype(np.int64)
