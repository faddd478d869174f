"""Which formats strftime, strptime and try_strptime may be called with.

DuckDB 2.0 reserves nine bytes for `%n` (nanoseconds) and fills six of them, except where `%n` ends the format: the
rest of the text is memory of the process, which may hold rows of anyone. So a format is a literal, and holds only
specifiers that tests/query/test_time_format_bytes.py compares with an independent reading, byte by byte.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

MAX_FORMAT = 100  # characters: `%c` makes 25 out of 2
# Every one that DuckDB 2.0 knows. What a later version adds is refused until it is in the test's oracle.
_ALL = """
%% %a %A %b %B %c %d %-d %f %g %G %h %H %-H %I %-I %j %-j %m %-m %M %-M %n %p %S %-S %T %u %U %V %w %W %x %X %y %-y %Y
%z %Z
"""
SPECIFIERS = frozenset(_ALL.split())
NANOSECONDS = "%n"
_WRITES = "strftime"
TIME_FORMATTED = frozenset({_WRITES, "strptime", "try_strptime"})
_SPECIFIER = re.compile(r"%-?.?", re.DOTALL)


def format_problem(function: str, arguments: Sequence[str | list[str] | None]) -> str | None:
    """Return what is wrong with a call of one of TIME_FORMATTED, or None.

    An argument is given as the text of a literal, the texts of a list of literals, or None for anything else. strftime
    takes its arguments in either order: the literal with a specifier is the format, since a time in whose place it
    stood could not be read.
    """
    if len(arguments) != 2:
        return "takes two arguments"
    writes = function == _WRITES
    texts = [text for text in arguments if isinstance(text, str)] if writes else _listed(arguments[1])
    if not any("%" in text for text in texts):
        return "the format must be a literal with specifiers as %Y"
    return next(filter(None, (_text_problem(text, writes=writes) for text in texts)), None)


def _listed(argument: str | list[str] | None) -> list[str]:
    return [argument] if isinstance(argument, str) else argument or []


def _text_problem(text: str, *, writes: bool) -> str | None:
    if len(text) > MAX_FORMAT:
        return f"the format has {len(text)} characters, more than the {MAX_FORMAT} allowed"
    for found in _SPECIFIER.finditer(text):
        if found[0] not in SPECIFIERS:
            return f"{found[0]} is not a known specifier of a format"
        if writes and found[0] == NANOSECONDS and found.end() < len(text):
            return "%n must end the format: write strftime(t, '%S.%n') || 'Z'"
    return None
