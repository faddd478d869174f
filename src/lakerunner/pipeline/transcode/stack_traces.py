"""Which lines go on with the record above them: stack traces, and whatever is indented.

Comes in: the lines behind the first line of a record, none of which begins with a time. Goes out: whether each of them
still belongs to it. docs/formats/inputs.md shows this rule to users.
"""

from __future__ import annotations

import re

# What a record may be joined of; the line that is one too many begins another record.
MAX_LINES = 1_000
MAX_BYTES = 1 << 20

_CONTINUES = re.compile(
    r"""[\ \t\})\]]            # indented, or the end of a block
    |at\ |\.\.\.\ \d+\ more     # Java, .NET, JavaScript
    |(?:Caused\ by|Suppressed|Wrapped\ by):
    |Traceback\ \(most\ recent\ call\ last\):
    |During\ handling\ of\ the\ above\ exception
    |The\ above\ exception\ was\ the\ direct\ cause
    |goroutine\ \d+\ \[         # Go
    |(?:[A-Za-z_$][\w$]*\.)+[\w$]*(?:Exception|Error|Throwable)(?::|\s*$)  # java.lang.Error: x
    """,
    re.ASCII | re.X,
)


class StackTrace:
    """Where the lines of one record stand: Python's last line and Go's calls are known only by what is above them."""

    def __init__(self, first_line: str) -> None:
        self._in_python = _opens_python(first_line)
        self._in_go = first_line.startswith("goroutine ")

    def goes_on(self, line: str, after_blank: bool) -> bool:
        """Return whether this line, which has no time, belongs to the record; `after_blank`: a blank line is between
        it and the one above."""
        if line[:1] in (" ", "\t"):
            return True
        self._in_go = self._in_go and not after_blank
        if _CONTINUES.match(line):
            self._in_python = _opens_python(line)
            self._in_go = self._in_go or line.startswith("goroutine ")
            return True
        # The exception itself stands at the margin, below the calls that are indented.
        ended, self._in_python = self._in_python, False
        return (ended and not after_blank) or self._in_go


def _opens_python(line: str) -> bool:
    return line.endswith("Traceback (most recent call last):")
