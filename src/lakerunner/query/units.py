"""The units of work that a query worker takes: SQL's and those of metrics."""

from __future__ import annotations

import json

from lakerunner.model.errors import Corrupt
from lakerunner.query.metrics.unit import MetricsUnit
from lakerunner.query.unit import WorkUnit

Unit = WorkUnit | MetricsUnit


def unit_from_bytes(data: bytes) -> Unit:
    """Corrupt if these are not the bytes of a unit, of this version, of one organization."""
    try:
        unit = json.loads(data)
    except ValueError as error:
        raise Corrupt(f"not a work unit: {error}") from error
    if isinstance(unit, dict) and "metrics" in unit:
        return MetricsUnit.from_json(unit)
    return WorkUnit.from_json(unit)
