"""Names for the arrays that readers are made of."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

Bytes = npt.NDArray[np.uint8]
Bools = npt.NDArray[np.bool_]
Int32s = npt.NDArray[np.int32]
Int64s = npt.NDArray[np.int64]
# A structured array. Its fields are attributes in jitted code, which numpy's own types do not know.
Records: TypeAlias = Any
# Texts numbered by their first occurrence (read/names.py).
Names: TypeAlias = Any
