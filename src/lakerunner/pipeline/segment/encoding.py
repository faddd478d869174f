"""Choose how the columns of a segment are encoded: as makes a sample of its rows smallest.

Comes in: the segment's schema, which of its columns have few distinct values, and a sample of its rows. Goes out: the
encoding and the compression level of every column in the file. What a type suggests is often wrong: ids that repeat row
after row, or prices, are smaller as plain values, whose repetition ZSTD finds, than as differences or byte streams,
which hide it. So a few short runs of rows are written once with each candidate of a type, and measured. The same rows
give the same answer.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from lakerunner.model.signal import SignalSpec
from lakerunner.pipeline.steps.arrow_columns import is_textual
from lakerunner.pipeline.steps.layout import Layout, build_batch

# Runs, because what repeats does so among neighbours; several, because each service has attributes of its own.
RUNS, RUN_ROWS = 8, 512
RUN_BYTES = 512 << 10  # of input; a run of large rows is shorter
# With fewer rows the first candidate is taken: they show too little, or are too large to be written several times.
LEAST_ROWS = 1024
# A candidate must be this much smaller than those before it, which are faster to write or to read.
GAIN = 0.99
FAST, THOROUGH = 1, 3  # levels of ZSTD: from 5 on, texts take three times as long for a few percent


@dataclass(frozen=True)
class Encoding:
    """An encoding. `name` is Parquet's. `level` is ZSTD's."""

    name: str
    level: int = FAST


DICTIONARY, PLAIN = Encoding("RLE_DICTIONARY"), Encoding("PLAIN")
DIFFERENCES, LENGTHS, STREAMS = (
    Encoding("DELTA_BINARY_PACKED"),
    Encoding("DELTA_LENGTH_BYTE_ARRAY"),
    Encoding("BYTE_STREAM_SPLIT"),
)
_TEXTS, _WHOLE, _BROKEN = (PLAIN, LENGTHS), (DIFFERENCES, PLAIN, DICTIONARY), (PLAIN, STREAMS, DICTIONARY)


def choose_encodings_in_memory(layout: Layout, order: Any, spec: SignalSpec) -> dict[str, Encoding]:
    """Return the encodings of rows that are all in memory, by the column's path in the file."""
    sample = _sample_rows(layout, order)
    enough = len(sample) >= LEAST_ROWS
    return choose_encodings(layout.schema, layout.few, spec, build_batch(layout, sample) if enough else None)


def choose_encodings(
    schema: pa.Schema,
    few: Collection[str],
    spec: SignalSpec,
    sample: pa.RecordBatch | None,
    texts: tuple[Encoding, ...] = _TEXTS,
) -> dict[str, Encoding]:
    """Return the encodings by the column's path in the file. `few` are columns with few distinct values; without a
    sample, or with one of too few rows, nothing is measured. `texts` are the candidates for columns of many distinct
    texts."""
    decided: dict[str, Encoding] = {}
    undecided: dict[str, tuple[Encoding, ...]] = {}
    for field in schema:
        for path, kind in leaf_columns(field.name, field.type):
            if field.name in spec.sequences:
                decided[path] = STREAMS if pa.types.is_floating(kind) else DIFFERENCES
            elif pa.types.is_boolean(kind):
                decided[path] = PLAIN
            elif field.name in few or (path != field.name and is_textual(kind)):
                decided[path] = DICTIONARY
            else:
                undecided[path] = texts if is_textual(kind) else _candidates(kind)
    if sample is None or len(sample) < LEAST_ROWS:
        return decided | {path: candidates[0] for path, candidates in undecided.items()}
    return decided | _choose_smallest(sample, undecided)


def writer_options(encodings: Mapping[str, Encoding]) -> dict[str, Any]:
    """Return the options of a ParquetWriter."""
    return {
        "compression": "zstd",
        "compression_level": {path: encoding.level for path, encoding in encodings.items()},
        "use_dictionary": [path for path, encoding in encodings.items() if encoding == DICTIONARY],
        "column_encoding": {path: encoding.name for path, encoding in encodings.items() if encoding != DICTIONARY},
        "store_schema": False,
    }


def _sample_rows(layout: Layout, order: Any) -> Any:
    """Return evenly spread runs of rows."""
    runs = [part[:RUN_ROWS] for part in np.array_split(order, RUNS)]
    return np.concatenate([run[: np.searchsorted(np.cumsum(layout.sizes(run)), RUN_BYTES, "right")] for run in runs])


def _choose_smallest(sample: pa.RecordBatch, candidates: Mapping[str, tuple[Encoding, ...]]) -> dict[str, Encoding]:
    """Return the encoding of each of these columns that makes it smallest in the sample."""
    best: dict[str, tuple[int, Encoding]] = {}

    def measure(tried: Mapping[str, Encoding]) -> None:
        for path, size in _measure(sample, tried).items():
            if path not in best or size < best[path][0] * GAIN:
                best[path] = size, tried[path]

    for number in range(max(map(len, candidates.values()), default=0)):
        measure({path: several[number] for path, several in candidates.items() if number < len(several)})
    measure({path: replace(encoding, level=THOROUGH) for path, (_, encoding) in best.items() if encoding != DICTIONARY})
    return {path: encoding for path, (_, encoding) in best.items()}


def _measure(sample: pa.RecordBatch, encodings: Mapping[str, Encoding]) -> dict[str, int]:
    """Return the compressed bytes of these columns of the sample."""
    batch = sample.select(
        [
            field.name
            for field in sample.schema
            if any(path in encodings for path, _ in leaf_columns(field.name, field.type))
        ]
    )
    sink = pa.BufferOutputStream()
    with pq.ParquetWriter(sink, batch.schema, write_statistics=False, **writer_options(encodings)) as writer:
        writer.write_batch(batch)
    group = pq.read_metadata(pa.BufferReader(sink.getvalue())).row_group(0)
    columns = [group.column(place) for place in range(group.num_columns)]
    sizes = {column.path_in_schema: column.total_compressed_size for column in columns}
    return {path: sizes[path] for path in encodings}


def leaf_columns(path: str, kind: pa.DataType) -> Iterator[tuple[str, pa.DataType]]:
    """Yield the leaf columns of this column in the file, each with its type."""
    if pa.types.is_dictionary(kind):
        yield path, kind.value_type
    elif pa.types.is_map(kind):
        yield from leaf_columns(f"{path}.key_value.key", kind.key_type)
        yield from leaf_columns(f"{path}.key_value.value", kind.item_type)
    elif pa.types.is_list(kind):
        yield from leaf_columns(f"{path}.list.element", kind.value_type)
    elif pa.types.is_struct(kind):
        for field in kind:
            yield from leaf_columns(f"{path}.{field.name}", field.type)
    else:
        yield path, kind


def _candidates(kind: pa.DataType) -> tuple[Encoding, ...]:
    return _BROKEN if pa.types.is_floating(kind) else _WHOLE
