"""The units of work that a query worker takes: SQL's and those of metrics."""

from __future__ import annotations

import json
from typing import Any

from lakerunner.model.errors import Corrupt
from lakerunner.query.metrics.unit import MetricsUnit
from lakerunner.query.unit import WorkUnit

Unit = WorkUnit | MetricsUnit
# A PromQL expression has at most 100 inside each other, two or three levels of JSON each; units are read recursively.
MAX_LEVELS = 400


def unit_from_bytes(data: bytes) -> Unit:
    """Corrupt if these are not the bytes of a unit, of this version, of one organization."""
    try:
        unit = json.loads(data)
    except ValueError as error:
        raise Corrupt(f"not a work unit: {error}") from error
    except RecursionError:
        raise _too_deep() from None
    _check_levels(unit)
    if isinstance(unit, dict) and "metrics" in unit:
        return MetricsUnit.from_json(unit)
    return WorkUnit.from_json(unit)


def _check_levels(unit: Any) -> None:
    """Level by level, so that a deep unit takes no stack."""
    level = [unit]
    for _ in range(MAX_LEVELS):
        level = [item for value in level for item in _items(value)]
        if not level:
            return
    raise _too_deep()


def _items(value: Any) -> list[Any]:
    found = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return [item for item in found if isinstance(item, dict | list)]


def _too_deep() -> Corrupt:
    return Corrupt(f"not a work unit: it is nested deeper than {MAX_LEVELS} levels")
