"""Encoded log records and spans on their way into export requests.

Comes in: rows of records with their times and pods, in whatever order they were made. Goes out: records in the order
of time, and export requests in which each pod has one resource with one scope. The order is total (time, then the
request's id, then the order of the lines inside it), so it does not depend on how the time was cut.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lakerunner_demo.noise import I64, U64
from lakerunner_demo.services import Pod
from lakerunner_demo.wire import DELIMITED, constant, nested, tag, varint

_FIELD_1 = tag(1, DELIMITED)
_FIELD_2 = tag(2, DELIMITED)
SCOPE_VERSION = "1.4.0"


@dataclass(frozen=True)
class Records:
    """One row each; `data` holds the record as a field of its ScopeLogs or ScopeSpans."""

    time_ns: I64
    ids: U64
    resource: I64
    data: NDArray[Any]

    def __len__(self) -> int:
        return len(self.time_ns)

    def take(self, rows: Any) -> Records:
        return Records(self.time_ns[rows], self.ids[rows], self.resource[rows], self.data[rows])

    def in_time_order(self) -> Records:
        return self.take(np.lexsort((self.ids, self.time_ns)))

    def split(self, before_ns: int) -> tuple[Records, Records]:
        """Split records that are in order of time: those before this time, and the others."""
        return self.divide(int(np.searchsorted(self.time_ns, before_ns)))

    def divide(self, count: int) -> tuple[Records, Records]:
        """Split the records: the first `count`, and the others."""
        return self.take(slice(0, count)), self.take(slice(count, None))


def joined(parts: Sequence[Records]) -> Records:
    if not parts:
        empty = np.empty(0, np.int64)
        return Records(empty, empty.astype(np.uint64), empty, np.empty(0, object))
    return Records(
        np.concatenate([part.time_ns for part in parts]),
        np.concatenate([part.ids for part in parts]),
        np.concatenate([part.resource for part in parts]),
        np.concatenate([part.data for part in parts]),
    )


def as_column(data: list[bytes]) -> NDArray[Any]:
    column = np.empty(len(data), object)
    column[:] = data
    return column


def request_of(world: int, signal: str, records: Records) -> bytes:
    """Build one OTLP export request of these records, which are in order of time."""
    order = np.argsort(records.resource, kind="stable")
    codes, starts = np.unique(records.resource[order], return_index=True)
    data = records.data[order].tolist()
    pieces: list[bytes] = []
    for code, start, end in zip(codes.tolist(), starts, [*starts[1:], len(data)], strict=True):
        resource, scope = _heads(world, signal, code)
        inner = len(scope) + sum(map(len, data[start:end]))
        inside = len(_FIELD_2) + len(varint(inner)) + inner
        pieces += [_FIELD_1, varint(len(resource) + inside), resource, _FIELD_2, varint(inner), scope]
        pieces += data[start:end]
    return b"".join(pieces)


@lru_cache(maxsize=1024)
def _heads(world: int, signal: str, code: int) -> tuple[bytes, bytes]:
    """Return the resource and the scope of a pod, each as field 1 of its parent message."""
    pod = Pod.of(world, code)
    name = pod.service.package if signal == "logs" else f"{pod.service.package}/tracing"
    return pod.resource(), constant(nested(1, nested(1, name.encode()), nested(2, SCOPE_VERSION.encode())))
