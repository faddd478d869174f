"""CSV with a header: one record per row, every cell a string until its field makes something else of it.

The header shows what separates cells (`delimiters.py`). Quotes as RFC 4180 has them, line ends inside them included. An
empty cell is no value. A row of another width than the header is damage: nobody knows which cell belongs to which
column.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator

from lakerunner.model.errors import Corrupt
from lakerunner.model.findings import MAX_EXCERPT
from lakerunner.pipeline.transcode.columns import Columns
from lakerunner.pipeline.transcode.delimiters import header_of
from lakerunner.pipeline.transcode.lines import MAX_LINE, Overlong, lines, without_bom
from lakerunner.pipeline.transcode.reading import Reading, Transcoded
from lakerunner.pipeline.transcode.signals import RECORDS
from lakerunner.pipeline.transcode.values import ABSENT, Unfit

csv.field_size_limit(MAX_LINE)  # the module's own limit is for the whole process, and lower


def from_tsv(signal: str, data: memoryview, columns: Columns) -> Transcoded:
    """The same of cells that are separated by tabs, whatever the header looks like."""
    return from_csv(signal, data, columns, "\t")


def from_csv(signal: str, data: memoryview, columns: Columns, delimiter: str = "") -> Transcoded:
    """The export request of these rows, and the lines that are no rows of this header."""
    found = header_of(data)
    delimiter = delimiter or found.delimiter()
    rows = _rows(data, delimiter)
    _, _, header = next(rows, (0, 0, []))
    if not header:
        raise Corrupt("a CSV file begins with a header, this one is blank")
    names = tuple(name or f"column_{index}" for index, name in enumerate(header, start=1))
    reading = Reading()
    if doubt := found.doubt(delimiter):
        reading.note("delimiter", doubt, found.line)
    records = RECORDS[signal](columns, reading)
    for line, offset, row in rows:
        reading.at(line, offset)
        try:
            if len(row) != len(names):
                raise Unfit(f"{len(row)} cells, the header has {len(names)}")
            records.add(names, [cell or ABSENT for cell in row])
        except Unfit as error:
            reading.reject(str(error), bytes(data[offset : offset + MAX_EXCERPT]).partition(b"\n")[0])
    return reading.transcoded(records.data())


def _rows(data: memoryview, delimiter: str) -> Iterator[tuple[int, int, list[str]]]:
    """(number and offset of its first line, cells) of each row that is not blank."""
    texts = _Texts(data)
    reader = csv.reader(texts, delimiter=delimiter, strict=True)
    while True:
        line, offset = texts.next_number, texts.next_offset
        try:
            row = next(reader, None)
        except csv.Error as error:
            raise Corrupt(f"line {line}: not CSV: {error}") from None
        if row is None:
            return
        if row:
            yield line, offset, row


class _Texts:
    """The lines as text, and where the next one stands."""

    def __init__(self, data: memoryview) -> None:
        self._lines = lines(data)
        self.next_number, self.next_offset = 1, len(data) - len(without_bom(data))

    def __iter__(self) -> Iterator[str]:
        return self

    def __next__(self) -> str:
        number, offset, line = next(self._lines)
        if type(line) is Overlong:
            raise Corrupt(f"line {number}: {line.reason}")
        self.next_number, self.next_offset = number + 1, offset + len(line) + 1
        try:
            return line.decode() + "\n"
        except UnicodeDecodeError as error:
            raise Corrupt(f"line {number}, byte {error.start + 1}: not UTF-8") from None
