"""Rule versions and parts that tests are made of, and what the parts in segments add up to."""

from __future__ import annotations

import io
import json
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC
from math import fsum
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from lakerunner.model.metric_rules.metric_rule import Measure, MetricRule, RuleVersion
from lakerunner.model.segment import Segment
from lakerunner.pipeline.rule_parts import PART_SCHEMA
from suites.ingested import ORGANIZATION

SECOND_NS = 10**9


def version(id_: int, measure: str = "count", selector: str = '{service_name="shop"}', **changes: Any) -> RuleVersion:
    """Return a version of a rule over logs, named after its id."""
    rule = MetricRule(f"rule{id_}", "logs", selector, Measure.parse(measure), f"made_{id_}", **changes)
    return RuleVersion(id_, ORGANIZATION, 1, rule)


def part(labels: Mapping[str, str], end_s: float, count: int, total: float, **further: Any) -> dict[str, Any]:
    """Return the row of a part."""
    row: dict[str, Any] = dict.fromkeys(PART_SCHEMA.names) | {"sum_error": 0.0} | further
    pairs = json.dumps([list(pair) for pair in sorted(labels.items())])
    return row | {"labels": pairs, "timestamp": round(end_s * SECOND_NS), "count": count, "sum": total}


def batch_of(*rows: dict[str, Any]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist(list(rows), schema=PART_SCHEMA)


Key = tuple[str, tuple[tuple[str, str], ...], int]  # collector, labels, end in s
Added = dict[Key, tuple[int, float]]


def added_parts(segments: Iterable[Segment], read: Callable[[str], bytes]) -> Added:
    """Return count and sum by collector, labels and end in s, of all these segments of parts, without those of which
    nothing is left."""
    found: dict[Key, list[tuple[int, float]]] = defaultdict(list)
    for segment in segments:
        for row in pq.read_table(io.BytesIO(read(segment.path))).to_pylist():
            labels = {name.removeprefix("attributes."): row[name] for name in row if name.startswith("attributes.")}
            labels |= {key: json.loads(text) for key, text in row["attributes"]}
            kept = tuple(sorted((key, value) for key, value in labels.items() if value is not None))
            end_s = round(row["timestamp"].replace(tzinfo=UTC).timestamp())
            found[segment.collector, kept, end_s].append((row["chq_rollup_count"], row["chq_rollup_sum"]))
    added = {key: (sum(n for n, _ in some), fsum(total for _, total in some)) for key, some in found.items()}
    return {key: one for key, one in added.items() if one != (0, 0.0)}
