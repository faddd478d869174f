"""Write rows that are in memory as one segment, with its side files.

Comes in: Rows after the steps of their signal, which of them are in the segment, and its identity. Goes out: the files,
through `put`, side files before the segment; the index row. The same rows and identity give the same bytes.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa

from lakerunner.model.segment import Column, Segment
from lakerunner.model.signal import SignalSpec
from lakerunner.pipeline.read.rows import Rows
from lakerunner.pipeline.segment.encoding import DICTIONARY, choose_encodings_in_memory
from lakerunner.pipeline.segment.writer import (
    Consumer,
    FileForm,
    SegmentIdentity,
    SegmentWriter,
    SeriesFacts,
    SideInputs,
)
from lakerunner.pipeline.signals import row_of, sides_of
from lakerunner.pipeline.steps.layout import Layout, build_batch, lay_out
from lakerunner.pipeline.steps.order import row_groups
from lakerunner.pipeline.steps.series_labels import RowSeries
from lakerunner.pipeline.steps.stream_columns import DERIVED, StreamColumns, with_derived_fields, with_stream_columns

Put = Callable[[str, memoryview], object]


@dataclass(frozen=True)
class SegmentDraft:
    """A segment that is laid out: its rows, the numbers of those of each row group, the form of its file, and what
    derives columns from others."""

    rows: Rows
    order: Any
    layout: Layout
    groups: Sequence[Any]
    form: FileForm
    streams: StreamColumns | None

    @property
    def columns(self) -> tuple[Column, ...]:
        return self.form.columns

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Yield the row groups."""
        for group in self.groups:
            batch = build_batch(self.layout, group)
            yield with_stream_columns(batch, self.streams) if self.streams else batch


def draft_segment(spec: SignalSpec, rows: Rows, order: Any) -> SegmentDraft:
    """Lay out the segment of the rows with these numbers, in this order."""
    layout = lay_out(rows, order, spec)
    groups = row_groups(order, layout.sizes(order), spec.row_group_rows)
    encodings = choose_encodings_in_memory(layout, order, spec)
    form = FileForm(layout.schema, layout.stored, encodings, layout.most_different(spec.bloom, groups))
    derive = row_of(spec).derive
    streams = derive(layout.stored) if derive else None
    return SegmentDraft(rows, order, layout, groups, _with_derived(form) if streams else form, streams)


def write_segment(
    draft: SegmentDraft,
    identity: SegmentIdentity,
    put: Put,
    *,
    facts: SeriesFacts | None = None,
    consumers: Sequence[Consumer] = (),
) -> Segment:
    """Write the segment; its files are in the store when this returns. `consumers` get its row groups too. `facts` are
    about the series of metrics; without them they follow from the rows."""
    inputs = SideInputs(draft.layout.stored, facts or RowSeries(draft.rows, draft.order))
    sides = sides_of(identity.spec, inputs)
    sink = pa.BufferOutputStream()
    # All rows are in memory, so all their distinct texts may be too.
    with SegmentWriter(identity, draft.form, sides, sink, consumers=consumers, most_held=sys.maxsize) as writer:
        for batch in draft.batches():
            writer.add(batch)
        written = writer.finish()
    for name, side in written.sides.items():
        put(written.segment.side_path(name), memoryview(side))
    put(written.segment.path, memoryview(sink.getvalue()))
    return written.segment


def _with_derived(form: FileForm) -> FileForm:
    """Return the form with the columns that are derived from the others."""
    schema = with_derived_fields(form.schema)
    own = {field.name: Column(field.name, "") for field in DERIVED} | {one.name: one for one in form.columns}
    encodings = {**form.encodings, **dict.fromkeys((field.name for field in DERIVED), DICTIONARY)}
    return replace(form, schema=schema, columns=tuple(own[name] for name in schema.names), encodings=encodings)
