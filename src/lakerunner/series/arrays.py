"""Names for the arrays that values are made of."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]
Objects = npt.NDArray[Any]


def filled(objects: Objects) -> Bools:
    """Where there is one."""
    found: Bools = np.not_equal(objects, None)  # type: ignore[call-overload]
    return found
