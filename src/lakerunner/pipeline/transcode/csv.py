"""CSV with a header: one record per row, every cell a string until its field makes something else of it.

The header shows what separates cells (`delimiters.py`). Quotes as RFC 4180 has them, line ends inside them included. An
empty cell is no value. A row of another width than the header is damage: nobody knows which cell belongs to which
column.

Where a row cannot be read, its first line is rejected and reading goes on with the next line. So a quote that is never
closed costs its own line, not the rows that it seems to swallow; the other lines of a bad row that was meant to have
several are read as rows, and rejected unless they have the header's width.
"""

from __future__ import annotations

import csv
from collections import deque
from collections.abc import Iterator

from lakerunner.model.errors import Corrupt
from lakerunner.model.findings import MAX_EXCERPT
from lakerunner.model.plural import plural
from lakerunner.pipeline.transcode.columns import Columns
from lakerunner.pipeline.transcode.delimiters import header_of
from lakerunner.pipeline.transcode.encodings import as_utf8
from lakerunner.pipeline.transcode.lines import MAX_LINE, Overlong, lines
from lakerunner.pipeline.transcode.reading import Reading, Transcoded
from lakerunner.pipeline.transcode.signals import RECORDS
from lakerunner.pipeline.transcode.values import ABSENT, Unfit

csv.field_size_limit(MAX_LINE)  # the module's own limit is for the whole process, and lower


def from_tsv(signal: str, data: memoryview, columns: Columns) -> Transcoded:
    """The same of cells that are separated by tabs, whatever the header looks like."""
    return from_csv(signal, data, columns, "\t")


def from_csv(signal: str, data: memoryview, columns: Columns, delimiter: str = "") -> Transcoded:
    """The export request of these rows, and the lines that are no rows of this header. A blank file has no rows."""
    reading = Reading()
    data = as_utf8(data, reading)
    found = header_of(data)
    delimiter = delimiter or found.delimiter()
    if doubt := found.doubt(delimiter):
        reading.note("delimiter", doubt, found.line)
    records = RECORDS[signal](columns, reading)
    rows = _Rows(data, delimiter)
    names = rows.header()
    while names and rows.begin():
        reading.at(rows.line, rows.offset)
        try:
            records.add(names, [cell or ABSENT for cell in rows.read(len(names))])
        except Unfit as error:
            reading.reject(str(error), rows.first_line(data))
            if isinstance(error, _Broken):
                rows.step_back()
    return reading.transcoded(records.data())


class _Broken(Unfit):
    """Nobody knows where the row ends."""


class _Rows:
    """The rows of a file, with a way back to the second line of the one read last. `line` and `offset` are where it
    starts. As an iterator it gives the CSV reader its lines."""

    def __init__(self, data: memoryview, delimiter: str) -> None:
        self._lines = lines(data)
        self._reader = csv.reader(self, delimiter=delimiter, strict=True)
        self._waiting: deque[tuple[int, int, bytes]] = deque()
        self._taken: list[tuple[int, int, bytes]] = []
        self._size = self._reread = 0  # bytes of the row, and of all lines that were stepped back to
        self._not_utf8 = ""
        self.line = self.offset = 0

    def header(self) -> tuple[str, ...]:
        """The names of the columns, from the first line that is not blank; nothing if there is none."""
        if not self.begin():
            return ()
        try:
            row = self.read(0)
        except Unfit as error:
            raise Corrupt(f"line {self.line}: {error}") from None
        return tuple(name or f"column_{index}" for index, name in enumerate(row, start=1))

    def begin(self) -> bool:
        """Go on to the next row, past blank lines; False if there is none."""
        self._taken.clear()
        self._size, self._not_utf8 = 0, ""
        while line := self._waiting.popleft() if self._waiting else next(self._lines, None):
            if line[2].strip(b"\r"):
                self._waiting.appendleft(line)
                self.line, self.offset, _ = line
                return True
        return False

    def read(self, width: int) -> list[str]:
        """The cells. _Broken if it is no row of this width, where 0 is any; Unfit if it is one, but not in UTF-8."""
        try:
            row: list[str] = next(self._reader)
        except csv.Error as error:
            raise _Broken(f"not CSV: {error}") from None
        if width and len(row) != width:
            raise _Broken(f"{plural(len(row), 'cell')}, the header has {width}")
        if self._not_utf8:
            raise Unfit(self._not_utf8)
        return row

    def step_back(self) -> None:
        """Go on with the second line of this row. Corrupt if that was done for too much: each time may cost a look at
        all that follows."""
        again = self._taken[1:]
        self._reread += sum(len(line) for _, _, line in again)
        if self._reread > 4 * MAX_LINE:
            raise Corrupt(f"line {self.line}: too many quotes that are never closed")
        self._waiting.extendleft(reversed(again))

    def first_line(self, data: memoryview) -> bytes:
        return bytes(data[self.offset : self.offset + MAX_EXCERPT]).partition(b"\n")[0]

    def __iter__(self) -> Iterator[str]:
        return self

    def __next__(self) -> str:
        taken = self._waiting.popleft() if self._waiting else next(self._lines)
        self._taken.append(taken)
        line = taken[2]
        self._size += len(line)
        if type(line) is Overlong or self._size > MAX_LINE:
            raise _Broken(f"longer than {MAX_LINE >> 20} MB")
        try:
            return line.decode() + "\n"
        except UnicodeDecodeError as error:
            # The row is still taken apart, so that it is rejected with all of its lines.
            self._not_utf8 = self._not_utf8 or f"byte {error.start + 1}: not UTF-8"
            return line.decode(errors="replace") + "\n"
