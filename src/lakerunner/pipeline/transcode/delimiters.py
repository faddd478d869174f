"""What separates the cells of a CSV file: found from its header line, unless its ending says it.

The delimiter is the one of DELIMITERS that occurs most often in the first line that is not blank, quoted text left out;
of equally frequent ones the first in the table; a comma where there is none.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from lakerunner.model.plural import plural
from lakerunner.pipeline.transcode.lines import lines

DELIMITERS = {",": "comma", ";": "semicolon", "\t": "tab", "|": "pipe"}

_QUOTED = re.compile(rb'"[^"]*"?')


class Header(NamedTuple):
    """The number of the header's line, and how often each delimiter occurs in it."""

    line: int
    counts: dict[str, int]

    def delimiter(self) -> str:
        return max(DELIMITERS, key=lambda sign: self.counts[sign])  # of equal ones max takes the first

    def doubt(self, used: str) -> str:
        """Return the text of a note if the header could be read with another delimiter than this one, else ""."""
        others = [f"{DELIMITERS[sign]} {plural(self.counts[sign], 'time')}" for sign in DELIMITERS if sign != used]
        if not any(self.counts[sign] for sign in DELIMITERS if sign != used):
            return ""
        found = f"{DELIMITERS[used]} {plural(self.counts[used], 'time')}"
        return f"cells are separated by {DELIMITERS[used]}; the header has {found}, {', '.join(others)}"


def header_of(data: memoryview) -> Header:
    """Look at the first line that is not blank."""
    for number, _, line in lines(data):
        if line.strip(b"\r\n "):
            plain = _QUOTED.sub(b"", line)
            return Header(number, {sign: plain.count(sign.encode()) for sign in DELIMITERS})
    return Header(0, dict.fromkeys(DELIMITERS, 0))
