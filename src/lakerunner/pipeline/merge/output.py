"""Row groups of a merge or a rollup to segments: written on the local disk, then put into the store.

Comes in: the row groups, the builders of side files. Goes out: the files, through `put_file`, those beside a segment
first, and the index row. The file grows on the local disk, so that a row group is in memory at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakerunner.model.segment import Column, Segment
from lakerunner.model.signal import SignalSpec
from lakerunner.pipeline.arrays import plain
from lakerunner.pipeline.encoding import DICTIONARY, LENGTHS, PLAIN, RUN_ROWS, encodings_by
from lakerunner.pipeline.merge.keys import Keys
from lakerunner.pipeline.merge.row_groups import Groups, runs_of
from lakerunner.pipeline.sides.side import Side
from lakerunner.pipeline.write import FileForm, Identity, SegmentWriter

# Few different values among neighbours are as small without a dictionary as with one, but not in a whole row group.
_FEW_NUMBERS = 0.1
PutFile = Callable[[str, Path], None]


@dataclass(frozen=True)
class Output:
    """Where segments of this schema go. `sample` are rows of all parts of them, by which their columns are encoded:
    without one, the first row group of each is. With `max_bytes` a segment ends with the first row group that reaches
    them and at whose end the sort key changes."""

    schema: pa.Schema
    columns: tuple[Column, ...]
    directory: Path
    put_file: PutFile
    sample: pa.RecordBatch | None = None
    max_bytes: int | None = None

    def write(self, identity: Identity, groups: Groups, sides: Mapping[str, Side]) -> Segment:
        """Write the segment of the next row groups, of which there is one at least; it is in the store when this
        returns. `groups` hold what is left."""
        path = self.directory / f"{identity.id}.merged"
        sample = runs_of(groups.peek()) if self.sample is None else self.sample
        form = _form(identity.spec, self.schema, self.columns, sample)
        with pa.OSFile(str(path), "wb") as sink, SegmentWriter(identity, form, sides, sink) as writer:
            while (group := groups.take()) is not None:
                writer.add(group)
                last = Keys(group.slice(group.num_rows - 1), identity.spec.sort_by).at(0)
                del group  # before another is made
                if self.max_bytes is not None and writer.bytes >= self.max_bytes:
                    following = groups.peek()
                    if following is None or Keys(following.slice(0, 1), identity.spec.sort_by).at(0) != last:
                        break
            written = writer.finish()
        segment = written.segment
        for name, data in written.sides.items():
            side = self.directory / f"{identity.id}.{name}"
            side.write_bytes(data)
            self.put_file(segment.side_path(name), side)
            side.unlink()
        self.put_file(segment.path, path)
        path.unlink()
        return segment


def _form(spec: SignalSpec, schema: pa.Schema, columns: tuple[Column, ...], sample: pa.RecordBatch) -> FileForm:
    """The form of a file of rows like those of the sample."""
    encodings = encodings_by(schema, _few(sample), spec, sample, (PLAIN, LENGTHS, DICTIONARY))
    blooms = {name: _most_different(sample, name, spec) for name in spec.bloom if name in schema.names}
    return FileForm(schema, columns, encodings, blooms)


def _few(sample: pa.RecordBatch) -> frozenset[str]:
    """The columns with few different values: texts that come as dictionaries, and numbers by the sample."""
    return frozenset(
        field.name
        for field in sample.schema
        if pa.types.is_dictionary(field.type)
        or (pa.types.is_integer(field.type) and _share(sample.column(field.name)) <= _FEW_NUMBERS)
    )


def _share(array: pa.Array) -> float:
    """Of the values, how many are different."""
    values = len(array) - array.null_count
    return pc.count_distinct(array).as_py() / values if values else 0.0


def _most_different(sample: pa.RecordBatch, name: str, spec: SignalSpec) -> int:
    """As many different values as a row group would have if all of it were like that run of the sample that has the
    most: rather too much room than too little."""
    column = plain(sample.column(name))
    runs = [column.slice(start, RUN_ROWS) for start in range(0, len(column), RUN_ROWS)]
    most = max((pc.count_distinct(run).as_py() / len(run) for run in runs), default=1.0)
    return int(np.ceil(most * spec.row_group_rows))
