"""CSV with a header: one record per row, every cell a string until its field converts it.

Quotes follow RFC 4180, including line ends inside them. An empty cell is no value. A row of another width than the
header is bad: it is unknown which cell belongs to which column.

The delimiter is the one of DELIMITERS that occurs most often in the first line that is not blank, outside quotes; of
equally frequent ones the first in the table; a comma if there is none.

If a row cannot be read, its first line is rejected and reading continues with the next line. So a quote that is never
closed costs its own line, not the rows that it seems to contain; the other lines of a bad row that was meant to have
several are read as rows, and rejected unless they have the header's width.
"""

from __future__ import annotations

import csv
import re
from collections import deque
from collections.abc import Iterator
from typing import NamedTuple

from lakerunner.model.display import plural
from lakerunner.model.errors import Corrupt
from lakerunner.model.source import MAX_EXCERPT
from lakerunner.pipeline.transcode.any_values import ABSENT, Unfit
from lakerunner.pipeline.transcode.columns import Columns
from lakerunner.pipeline.transcode.lines import MAX_LINE, Overlong, as_utf8, lines
from lakerunner.pipeline.transcode.results import FindingsBuilder, Transcoded
from lakerunner.pipeline.transcode.signal_records import RECORDS

csv.field_size_limit(MAX_LINE)  # the csv module's default is lower; the limit is one for the whole process


def from_csv(signal: str, data: memoryview, columns: Columns, delimiter: str = "") -> Transcoded:
    """Return the export request of these rows, and the lines that do not match the header. A blank file has no rows.
    A delimiter that is given holds, whatever the header looks like."""
    findings = FindingsBuilder()
    data = as_utf8(data, findings)
    found = find_header(data)
    delimiter = delimiter or found.delimiter()
    if doubt := found.doubt(delimiter):
        findings.note("delimiter", doubt, found.line)
    records = RECORDS[signal](columns, findings)
    rows = _RowReader(data, delimiter)
    names = rows.header()
    while names and rows.begin():
        findings.begin_record(rows.line, rows.offset)
        try:
            records.add(names, [cell or ABSENT for cell in rows.read(len(names))])
        except Unfit as error:
            findings.reject(str(error), rows.first_line(data))
            if isinstance(error, _BrokenRow):
                rows.step_back()
    return findings.build(records.data())


class _BrokenRow(Unfit):
    """Raised for a row whose end is unknown."""


class _RowReader:
    """Reads the rows of a file, and can go back to the second line of the last one. `line` and `offset` are where the
    row starts. As an iterator it feeds lines to the CSV reader."""

    def __init__(self, data: memoryview, delimiter: str) -> None:
        self._lines = lines(data)
        self._reader = csv.reader(self, delimiter=delimiter, strict=True)
        self._waiting: deque[tuple[int, int, bytes]] = deque()
        self._taken: list[tuple[int, int, bytes]] = []
        self._size = self._reread = 0  # bytes of the row, and of all lines that are read again
        self._not_utf8 = ""
        self.line = self.offset = 0

    def header(self) -> tuple[str, ...]:
        """Return the names of the columns, from the first line that is not blank; none for a blank file."""
        if not self.begin():
            return ()
        try:
            row = self.read(0)
        except Unfit as error:
            raise Corrupt(f"line {self.line}: {error}") from None
        return tuple(name or f"column_{index}" for index, name in enumerate(row, start=1))

    def begin(self) -> bool:
        """Advance to the next row, past blank lines; return False at the end of the file."""
        self._taken.clear()
        self._size, self._not_utf8 = 0, ""
        while line := self._waiting.popleft() if self._waiting else next(self._lines, None):
            if line[2].strip(b"\r"):
                self._waiting.appendleft(line)
                self.line, self.offset, _ = line
                return True
        return False

    def read(self, width: int) -> list[str]:
        """Return the cells. Raise _BrokenRow if the row has not this width (0: any), Unfit if it is not UTF-8."""
        try:
            row: list[str] = next(self._reader)
        except csv.Error as error:
            raise _BrokenRow(f"not CSV: {error}") from None
        if width and len(row) != width:
            raise _BrokenRow(f"{plural(len(row), 'cell')}, the header has {width}")
        if self._not_utf8:
            raise Unfit(self._not_utf8)
        return row

    def step_back(self) -> None:
        """Continue with the second line of this row. Raise Corrupt if too much is read again: each unclosed quote may
        cost a pass over the rest of the file."""
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
            raise _BrokenRow(f"longer than {MAX_LINE >> 20} MB")
        try:
            return line.decode() + "\n"
        except UnicodeDecodeError as error:
            # The row is still parsed, so that it is rejected with all of its lines.
            self._not_utf8 = self._not_utf8 or f"byte {error.start + 1}: not UTF-8"
            return line.decode(errors="replace") + "\n"


# In the order of preference.
DELIMITERS = {",": "comma", ";": "semicolon", "\t": "tab", "|": "pipe"}

_QUOTED = re.compile(rb'"[^"]*"?')


class Header(NamedTuple):
    """The number of the header's line, and how often each delimiter occurs in it."""

    line: int
    counts: dict[str, int]

    def delimiter(self) -> str:
        """Return the most frequent delimiter."""
        return max(DELIMITERS, key=lambda sign: self.counts[sign])  # max returns the first of equal ones

    def doubt(self, used: str) -> str:
        """Return the text of a note if the header could be read with another delimiter than this one, else ""."""
        others = [f"{DELIMITERS[sign]} {plural(self.counts[sign], 'time')}" for sign in DELIMITERS if sign != used]
        if not any(self.counts[sign] for sign in DELIMITERS if sign != used):
            return ""
        found = f"{DELIMITERS[used]} {plural(self.counts[used], 'time')}"
        return f"cells are separated by {DELIMITERS[used]}; the header has {found}, {', '.join(others)}"


def find_header(data: memoryview) -> Header:
    """Count the delimiters in the first line that is not blank."""
    for number, _, line in lines(data):
        if line.strip(b"\r\n "):
            plain = _QUOTED.sub(b"", line)
            return Header(number, {sign: plain.count(sign.encode()) for sign in DELIMITERS})
    return Header(0, dict.fromkeys(DELIMITERS, 0))
