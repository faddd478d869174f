"""Lines of a log query as typed rows: a timestamp, the line, and the labels of each kind as a map.

Comes in: an answer whose labels are JSON texts. Goes out: an Answer of the same rows for the formats of
api/formats/row_formats.py. What always holds: batches are converted one by one, as they are read.
"""

from __future__ import annotations

from collections.abc import Iterator

import orjson
import pyarrow as pa

from lakerunner.logql.log_lines import KINDS
from lakerunner.query.answer import Answer
from lakerunner.query.contract.account import Account

LABELS = pa.map_(pa.string(), pa.string())
LINE_SCHEMA = pa.schema([("timestamp", pa.timestamp("ns")), ("line", pa.string()), *((kind, LABELS) for kind in KINDS)])


class LineAnswer:
    """An Answer (query/answer.py)."""

    schema = LINE_SCHEMA

    def __init__(self, answer: Answer) -> None:
        self._answer = answer

    @property
    def account(self) -> Account:
        return self._answer.account

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        return map(typed_lines, self._answer)

    def close(self) -> None:
        self._answer.close()


def typed_lines(batch: pa.RecordBatch) -> pa.RecordBatch:
    times = batch.column("timestamp").cast(pa.timestamp("ns"))
    labels = (_label_maps(batch.column(kind)) for kind in KINDS)
    return pa.record_batch([times, batch.column("line"), *labels], schema=LINE_SCHEMA)


def _label_maps(texts: pa.Array) -> pa.Array:
    """Return the maps that JSON objects state. Each different text is read once: streams repeat."""
    coded = texts.dictionary_encode()
    read = pa.array([list(orjson.loads(text).items()) for text in coded.dictionary.to_pylist()], LABELS)
    return read.take(coded.indices)
