"""Rule versions and parts that tests are made of."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from lakerunner.model.metric_rules.metric_rule import Measure, MetricRule, RuleVersion
from lakerunner.model.signal import METRICS
from suites.ingested import ORGANIZATION

SECOND_NS = 10**9
_SIDE = METRICS.schema.field("positive").type
PARTS = pa.schema(
    [
        ("labels", pa.dictionary(pa.int32(), pa.string())),
        ("timestamp", pa.int64()),
        ("count", pa.int64()),
        ("sum", pa.float64()),
        ("sum_error", pa.float64()),
        ("min", pa.float64()),
        ("max", pa.float64()),
        ("scale", pa.int32()),
        ("zero_count", pa.uint64()),
        ("positive", _SIDE),
        ("negative", _SIDE),
    ]
)


def version(id_: int, measure: str = "count", selector: str = '{service_name="shop"}', **changes: Any) -> RuleVersion:
    """Return a version of a rule over logs, named after its id."""
    rule = MetricRule(f"rule{id_}", "logs", selector, Measure.parse(measure), f"made_{id_}", **changes)
    return RuleVersion(id_, ORGANIZATION, 1, rule)


def part(labels: Mapping[str, str], end_s: float, count: int, total: float, **further: Any) -> dict[str, Any]:
    """Return the row of a part."""
    row: dict[str, Any] = dict.fromkeys(PARTS.names) | {"sum_error": 0.0} | further
    pairs = json.dumps([list(pair) for pair in sorted(labels.items())])
    return row | {"labels": pairs, "timestamp": round(end_s * SECOND_NS), "count": count, "sum": total}


def batch_of(*rows: dict[str, Any]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist(list(rows), schema=PARTS)
