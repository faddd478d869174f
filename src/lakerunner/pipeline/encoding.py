"""How the columns of a segment are encoded: as makes a sample of its rows smallest.

Comes in: the segment's schema, which of its columns have few different values, and a sample of its rows. Goes out: the
encoding and the compression level of every column in the file. What a type suggests is often wrong: ids that repeat
row after row, or prices, are smaller as plain values, whose repetition ZSTD finds, than as differences or as streams of
bytes, which hide it. So the candidates of each type are written once for a few short runs of rows, and measured. The
same rows give the same answer.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from lakerunner.model.signal import SignalSpec
from lakerunner.pipeline.steps.layout import Layout, batch_of

# Runs, because what repeats does so among neighbours; several, because each service has attributes of its own.
RUNS, RUN_ROWS = 8, 512
RUN_BYTES = 512 << 10  # of input; a run of large rows is shorter
# A sample of fewer rows tells too little, or is of rows that are too large to be written often: the first candidate.
LEAST_ROWS = 1024
# A candidate must be this much smaller than those before it, which are faster to write or to read.
GAIN = 0.99
FAST, THOROUGH = 1, 3  # levels of ZSTD: from 5 on, texts take three times as long for a few percent


@dataclass(frozen=True)
class Encoding:
    """`name` as Parquet calls it. `level` is ZSTD's."""

    name: str
    level: int = FAST


DICTIONARY, PLAIN = Encoding("RLE_DICTIONARY"), Encoding("PLAIN")
DIFFERENCES, LENGTHS, STREAMS = (
    Encoding("DELTA_BINARY_PACKED"),
    Encoding("DELTA_LENGTH_BYTE_ARRAY"),
    Encoding("BYTE_STREAM_SPLIT"),
)
_TEXTS, _WHOLE, _BROKEN = (PLAIN, LENGTHS), (DIFFERENCES, PLAIN, DICTIONARY), (PLAIN, STREAMS, DICTIONARY)


def encodings_of(layout: Layout, order: Any, spec: SignalSpec) -> dict[str, Encoding]:
    """Of rows that are all in memory; by the column's path in the file."""
    sample = _sample(layout, order)
    enough = len(sample) >= LEAST_ROWS
    return encodings_by(layout.schema, layout.few, spec, batch_of(layout, sample) if enough else None)


def encodings_by(
    schema: pa.Schema,
    few: Collection[str],
    spec: SignalSpec,
    sample: pa.RecordBatch | None,
    texts: tuple[Encoding, ...] = _TEXTS,
) -> dict[str, Encoding]:
    """By the column's path in the file. `few` are columns with few different values; without a sample, or with one
    of too few rows, nothing is measured. `texts` are candidates for those of many values."""
    decided: dict[str, Encoding] = {}
    undecided: dict[str, tuple[Encoding, ...]] = {}
    for field in schema:
        for path, kind in leaves(field.name, field.type):
            if field.name in spec.sequences:
                decided[path] = STREAMS if pa.types.is_floating(kind) else DIFFERENCES
            elif pa.types.is_boolean(kind):
                decided[path] = PLAIN
            elif field.name in few or (path != field.name and _textual(kind)):
                decided[path] = DICTIONARY
            else:
                undecided[path] = texts if _textual(kind) else _candidates(kind)
    if sample is None or len(sample) < LEAST_ROWS:
        return decided | {path: candidates[0] for path, candidates in undecided.items()}
    return decided | _smallest(sample, undecided)


def options(encodings: Mapping[str, Encoding]) -> dict[str, Any]:
    """What a ParquetWriter must be told."""
    return {
        "compression": "zstd",
        "compression_level": {path: encoding.level for path, encoding in encodings.items()},
        "use_dictionary": [path for path, encoding in encodings.items() if encoding == DICTIONARY],
        "column_encoding": {path: encoding.name for path, encoding in encodings.items() if encoding != DICTIONARY},
        "store_schema": False,
    }


def _sample(layout: Layout, order: Any) -> Any:
    """Runs of rows, evenly spread."""
    runs = [part[:RUN_ROWS] for part in np.array_split(order, RUNS)]
    return np.concatenate([run[: np.searchsorted(np.cumsum(layout.sizes(run)), RUN_BYTES, "right")] for run in runs])


def _smallest(sample: pa.RecordBatch, candidates: Mapping[str, tuple[Encoding, ...]]) -> dict[str, Encoding]:
    """The encoding of each of these columns that makes it smallest in the sample."""
    best: dict[str, tuple[int, Encoding]] = {}

    def measure(tried: Mapping[str, Encoding]) -> None:
        for path, size in _sizes(sample, tried).items():
            if path not in best or size < best[path][0] * GAIN:
                best[path] = size, tried[path]

    for number in range(max(map(len, candidates.values()), default=0)):
        measure({path: several[number] for path, several in candidates.items() if number < len(several)})
    measure({path: replace(encoding, level=THOROUGH) for path, (_, encoding) in best.items() if encoding != DICTIONARY})
    return {path: encoding for path, (_, encoding) in best.items()}


def _sizes(sample: pa.RecordBatch, encodings: Mapping[str, Encoding]) -> dict[str, int]:
    """The bytes of these columns of the sample, compressed."""
    batch = sample.select(
        [field.name for field in sample.schema if any(path in encodings for path, _ in leaves(field.name, field.type))]
    )
    sink = pa.BufferOutputStream()
    with pq.ParquetWriter(sink, batch.schema, write_statistics=False, **options(encodings)) as writer:
        writer.write_batch(batch)
    group = pq.read_metadata(pa.BufferReader(sink.getvalue())).row_group(0)
    columns = [group.column(place) for place in range(group.num_columns)]
    sizes = {column.path_in_schema: column.total_compressed_size for column in columns}
    return {path: sizes[path] for path in encodings}


def leaves(path: str, kind: pa.DataType) -> Iterator[tuple[str, pa.DataType]]:
    """The columns that a column of this type is in the file, each with its type."""
    if pa.types.is_dictionary(kind):
        yield path, kind.value_type
    elif pa.types.is_map(kind):
        yield from leaves(f"{path}.key_value.key", kind.key_type)
        yield from leaves(f"{path}.key_value.value", kind.item_type)
    elif pa.types.is_list(kind):
        yield from leaves(f"{path}.list.element", kind.value_type)
    elif pa.types.is_struct(kind):
        for field in kind:
            yield from leaves(f"{path}.{field.name}", field.type)
    else:
        yield path, kind


def _candidates(kind: pa.DataType) -> tuple[Encoding, ...]:
    return _BROKEN if pa.types.is_floating(kind) else _WHOLE


def _textual(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_binary(kind))
