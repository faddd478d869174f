"""Write answers of LogQL as Parquet, with Loki's columns, for clients that ask for it by their Accept header.

Comes in: entries by stream, or values of a metric query. Goes out: chunks of a Parquet file. What always holds: rows
have the order that they have in Loki's JSON; labels of all kinds are one map; times of lines are ns, of samples ms.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import orjson
import pyarrow as pa

from lakerunner.api.formats.parquet_stream import PARQUET_TYPE, ParquetStream
from lakerunner.api.formats.series_json import as_vector
from lakerunner.api.loki.line_answer import LABELS
from lakerunner.api.loki.log_json import Chunks, StreamGroups
from lakerunner.model.time import MS_NS
from lakerunner.query.series_answer import StepGroup

LINES = pa.schema([("timestamp", pa.timestamp("ns", "UTC")), ("labels", LABELS), ("line", pa.string())])
SAMPLES = pa.schema([("timestamp", pa.timestamp("ms", "UTC")), ("labels", LABELS), ("value", pa.float64())])


def accepts_parquet(accept: str) -> bool:
    """Return whether the header names Parquet, as Loki's clients do; they name no other type beside it."""
    return any(one.partition(";")[0].strip().lower() == PARQUET_TYPE for one in accept.split(","))


def streams_parquet(groups: StreamGroups) -> Chunks:
    """Yield a file of lines. The labels of `groups` must not be categorized."""
    return _file(
        LINES,
        (
            _rows(
                LINES,
                pa.array([one.timestamp for one in entries], pa.int64()),
                list(orjson.loads(labels).items()),
                pa.array([one.line for one in entries], pa.string()),
            )
            for labels, entries in groups.sorted()
        ),
    )


def samples_parquet(group: StepGroup) -> Chunks:
    """Yield a file of samples; a scalar is a series without labels."""
    vector = as_vector(group)
    times = group.steps.times // MS_NS
    return _file(
        SAMPLES,
        (
            _rows(SAMPLES, pa.array(times[present]), list(labels), pa.array(values[present]))
            for labels, values, present in zip(vector.labels, vector.values, vector.present, strict=True)
        ),
    )


def _rows(schema: pa.Schema, times: pa.Array, labels: list[tuple[str, str]], values: pa.Array) -> pa.RecordBatch:
    own = pa.array([labels], LABELS).take(pa.nulls(len(times), pa.int32()).fill_null(0))
    return pa.record_batch([times.cast(schema.field("timestamp").type), own, values], schema=schema)


def _file(schema: pa.Schema, batches: Iterable[pa.RecordBatch]) -> Iterator[bytes]:
    file = ParquetStream(schema)
    for batch in batches:
        if data := file.add(batch):
            yield data
    yield file.finish()
