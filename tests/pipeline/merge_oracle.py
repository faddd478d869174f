"""What a merge of segments must give, worked out row by row in plain Python, and what it does give.

Rows are those of otlp_oracle.rows_of: fixed columns, and attributes by key, wherever the segment had them. A number is
the one of `value` and `int_value` that is not null, as what it came as.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import groupby
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

from lakerunner.model.segment import Segment
from lakerunner.model.signal import SignalSpec
from lakerunner.objects.open import StoreAddress, open_store
from lakerunner.objects.store import ObjectStore
from lakerunner.pipeline.merge.inputs import open_segments
from lakerunner.pipeline.merge.merged_rows import MergedRows
from lakerunner.pipeline.merge.output import RowGroups, SegmentOutput
from lakerunner.pipeline.segment.writer import SegmentIdentity
from lakerunner.pipeline.signals import row_of
from pipeline.metrics_oracle import exact
from pipeline.otlp_oracle import COLLECTOR, ORGANIZATION, Row, make, raw_of, rows_of

MEMORY = 64 << 20


def a_store() -> ObjectStore:
    return open_store(StoreAddress(f"memory://{uuid4()}"))


def ingested(store: ObjectStore, spec: SignalSpec, contents: Sequence[bytes]) -> list[Segment]:
    """The segments of these requests, each for itself, in the order in which they came; all files in the store."""
    segments: list[Segment] = []
    for number, data in enumerate(contents):
        made, files = make(raw_of(data, f"{number}.binpb"), spec=spec)
        assert [reason for _, reason in made.failed if "no Resource" not in reason and "empty" not in reason] == []
        for path, file in files.items():
            store.put(path, file)
        segments += made.segments
    return [replace(segment, ingested=number + 1) for number, segment in enumerate(segments)]


def merge(
    store: ObjectStore, spec: SignalSpec, segments: Sequence[Segment], directory: Path, memory: int = MEMORY
) -> Segment | None:
    rows = MergedRows(spec, open_segments(store, segments, directory), memory, same_row=row_of(spec).same_row)
    newest = max(segment.ingested for segment in segments)
    identity = SegmentIdentity(UUID(int=9), ORGANIZATION, COLLECTOR, spec, level=1, ingested=newest)

    def put_file(key: str, path: Path) -> None:
        store.put(key, path.read_bytes())

    groups = RowGroups(rows, spec)
    if groups.peek() is None:
        return None
    return SegmentOutput(rows.schema, rows.columns, directory, put_file).write(identity, groups, {})


def read(store: ObjectStore, segment: Segment) -> list[Row]:
    rows = rows_of(segment, bytes(store.get(segment.path, max_bytes=1 << 30)))
    return [_comparable(row) for row in rows]


def expected(store: ObjectStore, spec: SignalSpec, segments: Sequence[Segment]) -> list[Row]:
    """The rows of these, in order, each once."""
    rows = [row for segment in segments for row in read(store, segment)]
    rows.sort(key=lambda row: key_of(spec, row))
    kept = []
    for _, run in groupby(rows, key=lambda row: key_of(spec, row)):
        alike = list(run)
        kept += [row for place, row in enumerate(alike) if not _comes_again(spec, row, alike[place + 1 :])]
    return kept


def key_of(spec: SignalSpec, row: Row) -> tuple[Any, ...]:
    key = [row[name] for name in spec.sort_by]
    return tuple(part.encode() if isinstance(part, str) else part for part in key)


def _comes_again(spec: SignalSpec, row: Row, later: Sequence[Row]) -> bool:
    if spec.name != "logs":
        return row in later
    identity = row.get("delivery"), row.get("delivery_row")
    return None not in identity and identity in [(one["delivery"], one["delivery_row"]) for one in later]


def _comparable(row: Row) -> Row:
    if "is_int" in row:
        number = row.pop("int_value") if row["int_value"] is not None else row.pop("value")
        row.pop("value", None)
        row.pop("int_value", None)
        row["number"] = number if number is None else int(number) if row["is_int"] else float(number)
    for name in ("events", "links", "exemplars"):
        for item in row.get(name) or ():
            item["attributes"] = _grouped(item["attributes"])
    if row.get("metadata") is not None:
        row["metadata"] = _grouped(row["metadata"])
    exactly: Row = exact(row)
    return exactly


def _grouped(pairs: Any) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for key, text in pairs:
        found.setdefault(key, []).append(text)
    return found
