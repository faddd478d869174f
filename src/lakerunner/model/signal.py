"""The only place where logs, metrics and traces differ: one SignalSpec row each.

A segment's Parquet columns are the signal's `schema`, then the attributes it shredded, sorted by name:
`attributes.K` and `resource.K`, `scope.K` for keys that are frequent in the segment, in the type most
values of the key have. Everything else stays in the map columns `attributes`, `resource_attributes`,
`scope_attributes` as typed JSON text (docs/formats/attributes.md), so no value and no type is lost.

Times are int64 ns since the epoch as timestamp[ns] without a zone, meaning UTC.
"""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from lakerunner.model.errors import UserError

TIME = pa.timestamp("ns")
OVERFLOW = pa.map_(pa.string(), pa.string())


@dataclass(frozen=True)
class Scope:
    """Where an attribute belongs: the map column that overflows, and the prefix of shredded columns."""

    map_column: str
    prefix: str


ATTRIBUTES = Scope("attributes", "attributes.")
RESOURCE = Scope("resource_attributes", "resource.")
SCOPE = Scope("scope_attributes", "scope.")
SCOPES = (ATTRIBUTES, RESOURCE, SCOPE)


@dataclass(frozen=True, order=True)
class Attribute:
    """One attribute by key. `scope` is a map column of the signal: attributes, resource_attributes, ..."""

    scope: str
    key: str

    def __post_init__(self) -> None:
        if self.scope not in {scope.map_column for scope in SCOPES}:
            raise ValueError(f"{self.scope} is not a scope")


_COMMON = [
    pa.field("service_name", pa.string(), nullable=False),
    pa.field("scope_name", pa.string(), nullable=False),
    pa.field("scope_version", pa.string(), nullable=False),
    pa.field("resource_schema_url", pa.string(), nullable=False),
    pa.field("scope_schema_url", pa.string(), nullable=False),
    pa.field("resource_dropped_attributes", pa.uint32(), nullable=False),
    pa.field("scope_dropped_attributes", pa.uint32(), nullable=False),
    *(pa.field(scope.map_column, OVERFLOW, nullable=False) for scope in SCOPES),
]

_EXEMPLAR = pa.struct(
    [
        pa.field("timestamp", TIME),
        pa.field("double_value", pa.float64()),
        pa.field("int_value", pa.int64()),
        pa.field("trace_id", pa.binary()),
        pa.field("span_id", pa.binary()),
        pa.field("attributes", OVERFLOW),
    ]
)
# Counts are integers; only Prometheus' float histograms have float counts.
_BUCKETS = pa.struct(
    [
        pa.field("offset", pa.int32()),
        pa.field("counts", pa.list_(pa.uint64())),
        pa.field("float_counts", pa.list_(pa.float64())),
    ]
)
_EVENT = pa.struct(
    [
        pa.field("timestamp", TIME),
        pa.field("name", pa.string()),
        pa.field("attributes", OVERFLOW),
        pa.field("dropped_attributes_count", pa.uint32()),
    ]
)
_LINK = pa.struct(
    [
        pa.field("trace_id", pa.binary()),
        pa.field("span_id", pa.binary()),
        pa.field("trace_state", pa.string()),
        pa.field("flags", pa.uint32()),
        pa.field("attributes", OVERFLOW),
        pa.field("dropped_attributes_count", pa.uint32()),
    ]
)

_LOGS = pa.schema(
    [
        pa.field("timestamp", TIME, nullable=False),
        pa.field("observed_timestamp", TIME),
        pa.field("severity", pa.string(), nullable=False),  # text and number reconciled, upper case
        pa.field("severity_number", pa.int32(), nullable=False),
        pa.field("severity_text", pa.string(), nullable=False),
        pa.field("message", pa.string(), nullable=False),  # the body as text
        pa.field("body", pa.string()),  # the body as typed JSON where it is not a string
        pa.field("event_name", pa.string(), nullable=False),
        pa.field("trace_id", pa.binary()),
        pa.field("span_id", pa.binary()),
        pa.field("flags", pa.uint32(), nullable=False),
        pa.field("fingerprint", pa.int64(), nullable=False),  # of the message's pattern
        pa.field("dropped_attributes_count", pa.uint32(), nullable=False),
        # Identifies a row that was sent twice: a digest of the ResourceLogs that brought it, and its place there.
        pa.field("delivery", pa.int64()),
        pa.field("delivery_row", pa.uint32()),
        *_COMMON,
        # Made of the others when a segment is written, for LogQL; segments of older releases lack them.
        pa.field("resource_id", pa.int64()),  # digest of the resource's attributes and schema URL
        pa.field("detected_level", pa.string()),  # by the default rules of model/streams
    ]
)

_METRICS = pa.schema(
    [
        pa.field("timestamp", TIME, nullable=False),
        pa.field("start_timestamp", TIME),
        pa.field("metric_name", pa.string(), nullable=False),
        # gauge sum histogram exponential_histogram summary; unknown and metadata from Prometheus remote-write
        pa.field("metric_type", pa.string(), nullable=False),
        pa.field("temporality", pa.string()),  # cumulative, delta
        pa.field("monotonic", pa.bool_()),
        pa.field("unit", pa.string(), nullable=False),
        pa.field("description", pa.string(), nullable=False),
        pa.field("series", pa.int64(), nullable=False),  # digest of name and sorted labels
        # A number stands in one of both: int_value if all numbers of the series in the segment are integers.
        pa.field("value", pa.float64()),
        pa.field("int_value", pa.int64()),
        pa.field("is_int", pa.bool_()),  # whether it was sent as an integer
        pa.field("count", pa.uint64()),
        pa.field("float_count", pa.float64()),
        pa.field("sum", pa.float64()),
        pa.field("min", pa.float64()),
        pa.field("max", pa.float64()),
        pa.field("bounds", pa.list_(pa.float64())),
        pa.field("bucket_counts", pa.list_(pa.uint64())),
        pa.field("float_bucket_counts", pa.list_(pa.float64())),
        pa.field("scale", pa.int32()),
        pa.field("zero_count", pa.uint64()),
        pa.field("float_zero_count", pa.float64()),
        pa.field("zero_threshold", pa.float64()),
        pa.field("positive", _BUCKETS),
        pa.field("negative", _BUCKETS),
        pa.field("quantiles", pa.list_(pa.float64())),
        pa.field("quantile_values", pa.list_(pa.float64())),
        pa.field("exemplars", pa.list_(_EXEMPLAR)),
        pa.field("reset_hint", pa.string()),  # of Prometheus' native histograms: yes, no, gauge
        pa.field("metadata", OVERFLOW),  # of the metric
        pa.field("flags", pa.uint32(), nullable=False),
        # Of parts, the points of rules (docs/decisions/0030); all others lack them.
        pa.field("chq_rollup_count", pa.int64()),  # rows that the part is made of; negative: they are taken back
        pa.field("chq_rollup_sum", pa.float64()),
        pa.field("chq_rollup_sum_error", pa.float64()),  # what the sum's rounding lost; null is 0
        pa.field("chq_rollup_min", pa.float64()),  # null: none, as in a part that takes back
        pa.field("chq_rollup_max", pa.float64()),
        *_COMMON,
    ]
)
PART_COUNT = "chq_rollup_count"
PART_COLUMNS = tuple(name for name in _METRICS.names if name.startswith("chq_rollup_"))

# A row of a rollup is a bucket of a series: `timestamp` is its end, `start_timestamp` its start (model/tier.py). What
# describes the series is taken from the last point of the bucket. For numbers `scale`, `zero_count`, `positive` and
# `negative` are a histogram of the values (scale 6), and `count` is how many are in it; for histograms their own
# columns are the merged one. docs/formats/rollups.md.
_WINDOW = [
    pa.field("chq_rollup_count", pa.uint64()),  # of samples that are numbers; null: the bucket holds histograms
    pa.field("chq_rollup_sum", pa.float64()),
    pa.field("chq_rollup_sum_error", pa.float64()),  # what the sum's rounding lost: add it where sums are added
    pa.field("chq_rollup_min", pa.float64()),
    pa.field("chq_rollup_max", pa.float64()),
    pa.field("chq_rollup_first", pa.float64()),
    pa.field("chq_rollup_first_timestamp", TIME),
    pa.field("chq_rollup_last", pa.float64()),
    pa.field("chq_rollup_last_timestamp", TIME),
    pa.field("chq_rollup_increase", pa.float64()),  # from first to last, over resets
    pa.field("chq_rollup_reset_sum", pa.float64()),  # the values before resets, added
    pa.field("chq_rollup_resets", pa.uint64()),  # samples below the one before them in the bucket
    pa.field("chq_rollup_changes", pa.uint64()),  # samples unlike the one before them in the bucket
    pa.field("chq_rollup_stale_timestamp", TIME),  # of the last stale marker in the bucket
]
# For cumulative histograms: the first, if the bucket has more than one; and the sum of those before resets.
FIRST_HISTOGRAM = "chq_rollup_first_histogram"
RESET_HISTOGRAM = "chq_rollup_reset_histogram"
_OF_HISTOGRAM = (
    "count",
    "sum",
    "bounds",
    "bucket_counts",
    "scale",
    "zero_count",
    "zero_threshold",
    "positive",
    "negative",
)
_HISTOGRAM = pa.struct([_METRICS.field(name) for name in _OF_HISTOGRAM])
_WINDOW += [pa.field(FIRST_HISTOGRAM, _HISTOGRAM), pa.field(RESET_HISTOGRAM, _HISTOGRAM)]
_OF_POINTS = ("value", "int_value", "is_int", *PART_COLUMNS)
_ROLLUPS = pa.schema([*(field for field in _METRICS if field.name not in _OF_POINTS), *_WINDOW])

_TRACES = pa.schema(
    [
        pa.field("timestamp", TIME, nullable=False),  # start of the span
        pa.field("end_timestamp", TIME),
        pa.field("duration", pa.int64()),  # ns
        pa.field("trace_id", pa.binary(), nullable=False),
        pa.field("span_id", pa.binary(), nullable=False),
        pa.field("parent_span_id", pa.binary()),
        pa.field("trace_state", pa.string(), nullable=False),
        pa.field("name", pa.string(), nullable=False),
        pa.field("kind", pa.int32(), nullable=False),
        pa.field("status_code", pa.int32(), nullable=False),
        pa.field("status_message", pa.string(), nullable=False),
        pa.field("flags", pa.uint32(), nullable=False),
        pa.field("events", pa.list_(_EVENT)),
        pa.field("links", pa.list_(_LINK)),
        pa.field("dropped_attributes_count", pa.uint32(), nullable=False),
        pa.field("dropped_events_count", pa.uint32(), nullable=False),
        pa.field("dropped_links_count", pa.uint32(), nullable=False),
        *_COMMON,
    ]
)


@dataclass(frozen=True)
class SignalSpec:
    """`table` is the signal's name in SQL. `sort_version` names the order and layout that `sort_by` and `schema` state
    now: segments of another version are not merged with these. `row_group_rows` is the most that a row group holds.
    `bloom` columns get a Parquet bloom filter. Each value of `sequences` follows from the one before: a dictionary
    would not help them. A nullable column of the schema that no row of a segment fills is left out of it."""

    name: str
    table: str
    schema: pa.Schema
    sort_by: tuple[str, ...]
    sort_version: int
    row_group_rows: int
    bloom: tuple[str, ...]
    sequences: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for column in (*self.sort_by, *self.bloom, *self.sequences):
            if column not in self.schema.names:
                raise ValueError(f"{self.name}: {column} is not in its schema")


LOGS = SignalSpec(
    "logs", "logs", _LOGS, ("service_name", "timestamp"), 1, 20_000, ("trace_id",), sequences=("delivery_row",)
)
METRICS = SignalSpec(
    "metrics",
    "metrics",
    _METRICS,
    ("metric_name", "series", "timestamp"),
    1,
    100_000,
    (),
    sequences=("timestamp", "value", "int_value"),
)
TRACES = SignalSpec("traces", "spans", _TRACES, ("trace_id", "timestamp"), 1, 20_000, ("trace_id",))
# Also of the signal metrics: segments with a frequency_ms.
ROLLUPS = SignalSpec("metrics", "rollups", _ROLLUPS, METRICS.sort_by, 1, 50_000, (), sequences=("timestamp",))
SIGNALS = {spec.name: spec for spec in (LOGS, METRICS, TRACES)}


def spec_of(signal: str, frequency_ms: int) -> SignalSpec:
    """Return the spec of segments of this signal and frequency."""
    return ROLLUPS if frequency_ms else SIGNALS[signal]


def signal_named(name: str) -> SignalSpec:
    try:
        return SIGNALS[name]
    except KeyError:
        raise UserError(f"unknown signal {name!r}: use one of {', '.join(SIGNALS)}") from None
