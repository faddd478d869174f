"""Type names for the arrays that values consist of."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]
Objects = npt.NDArray[Any]


def filled(objects: Objects) -> Bools:
    """Return where an array of objects has an entry other than None."""
    found: Bools = np.not_equal(objects, None)  # type: ignore[call-overload]
    return found
