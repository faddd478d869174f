"""Names for the arrays that values are made of."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]
Objects = npt.NDArray[Any]

# A sample with this very NaN says that its series has ended. Every other NaN is a value.
STALE_BITS = 0x7FF0000000000002
STALE = np.array([STALE_BITS], np.uint64).view(np.float64)[0]


def is_stale(values: Floats) -> Bools:
    found: Bools = values.view(np.uint64) == STALE_BITS
    return found


def filled(objects: Objects) -> Bools:
    """Where there is one."""
    found: Bools = np.not_equal(objects, None)  # type: ignore[call-overload]
    return found
