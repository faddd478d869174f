"""CSV with a header: one record per row, every cell a string until its field makes something else of it.

Quotes as RFC 4180 has them, line ends inside them included. An empty cell is no value. A row of another width than the
header is damage: nobody knows which cell belongs to which column.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator

from lakerunner.model.errors import Corrupt
from lakerunner.pipeline.transcode.columns import Columns
from lakerunner.pipeline.transcode.lines import MAX_LINE, lines, without_bom
from lakerunner.pipeline.transcode.request import Damage
from lakerunner.pipeline.transcode.signals import RECORDS
from lakerunner.pipeline.transcode.values import ABSENT, Unfit

csv.field_size_limit(MAX_LINE)  # the module's own limit is for the whole process, and lower


def from_csv(signal: str, data: memoryview, columns: Columns) -> bytes:
    """The export request of these rows."""
    rows = _rows(without_bom(data))
    _, header = next(rows, (0, []))
    if not header:
        raise Corrupt("a CSV file begins with a header, this one is blank")
    names = tuple(name or f"column_{index}" for index, name in enumerate(header, start=1))
    records, damage = RECORDS[signal](columns), Damage()
    for line, row in rows:
        try:
            if len(row) != len(names):
                raise Unfit(f"{len(row)} cells, the header has {len(names)}")
            records.add(names, [cell or ABSENT for cell in row])
        except Unfit as error:
            damage.note(f"line {line}", str(error))
    damage.refuse()
    return records.data()


def _rows(data: memoryview) -> Iterator[tuple[int, list[str]]]:
    """(number of its first line, cells) of each row that is not blank."""
    reader = csv.reader(_texts(data), strict=True)
    while True:
        line = reader.line_num + 1
        try:
            row = next(reader, None)
        except csv.Error as error:
            raise Corrupt(f"line {line}: not CSV: {error}") from None
        if row is None:
            return
        if row:
            yield line, row


def _texts(data: memoryview) -> Iterator[str]:
    for number, line in lines(data):
        try:
            yield line.decode() + "\n"
        except UnicodeDecodeError as error:
            raise Corrupt(f"line {number}, byte {error.start + 1}: not UTF-8") from None
