"""The service of a row: what its reader says, else its resource's `service.name` where that is a string, else "". The
first one counts."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
from numba import njit

from lakerunner.model.signal import RESOURCE
from lakerunner.pipeline.read.names import texts_of
from lakerunner.pipeline.read.rows import Coded, Rows
from lakerunner.pipeline.read.walk import STRING
from lakerunner.pipeline.steps.take import Slices, code_slices

_KEY = b"service.name"


def name_service(rows: Rows) -> Rows:
    """Adds service_name where it is not there."""
    if "service_name" in rows.columns:
        return rows
    resources = rows.attached[RESOURCE.map_column]
    keys = texts_of(resources.keys, rows.data)
    at, size = _first_strings(resources.values, resources.first, keys.index(_KEY) if _KEY in keys else -1)
    codes, values = code_slices(Slices(STRING, at, size), rows.data, pa.string())
    return rows.plus(service_name=Coded(codes, values, resources.owner))


@njit(cache=True)
def _first_strings(values: Any, first: Any, key: Any) -> Any:
    """(at, size) of the first value of this key of each owner; empty where that is no string or there is none."""
    count = len(first) - 1
    at, size = np.zeros(count, np.int32), np.zeros(count, np.int32)
    for owner in range(count):
        for index in range(first[owner], first[owner + 1]):
            value = values[index]
            if value.key == key:
                if value.kind == STRING:
                    at[owner], size[owner] = value.at, value.size
                break
    return at, size
