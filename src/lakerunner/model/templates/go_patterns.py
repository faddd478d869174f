"""Find and replace the matches of a regular expression in a text, as Go's package regexp does.

Comes in: a pattern of RE2 and a text. Goes out: the text with the matches replaced, or their number. What always holds:
an empty match right behind another match does not count; a byte that is not UTF-8 matches as U+FFFD does, and is kept
where nothing replaces it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import Any

import re2

from lakerunner.model.errors import TooLarge, UserError
from lakerunner.model.regex import MAX_MEMORY, MAX_WORK, compile_regex
from lakerunner.model.templates.limits import check_length

_MAX_CACHED = 64  # patterns; each may hold MAX_MEMORY
_REFERENCE = re.compile(r"\$(?:(\$)|\{(\w+)\}|(\w+))")  # as $$, ${name} and $name
_LONE = re.compile("[\ud800-\udfff]")

Spans = list[tuple[int, int]]  # of the match and its groups, in bytes; (-1, -1) for a group without a part


@lru_cache(maxsize=_MAX_CACHED)
def _compile(pattern: str) -> Any:
    """Compile a pattern that may match anywhere. Raise ValueError with Go's words for one that is wrong."""
    if lone := _LONE.search(pattern):
        raise ValueError(f"error parsing regexp: invalid UTF-8: `{pattern[lone.start() :]}`")
    try:
        compile_regex(pattern)  # refuses what RE2 accepts and Go does not
    except TooLarge:
        raise
    except UserError as error:
        raise ValueError(error.message) from None
    options = re2.Options()
    options.max_mem = MAX_MEMORY
    options.log_errors = False
    return re2.compile(pattern.encode(), options)


def _matches(compiled: Any, text: str) -> Iterator[Spans]:
    """Return each match that Go counts, from left to right."""
    # A lone surrogate has as many bytes as the U+FFFD that is searched in its place, so that positions stay the same.
    data = (text if text.isascii() else _LONE.sub("\ufffd", text)).encode()
    at, before, work = 0, -1, 0
    while at <= len(data) and (found := compiled.search(data, at)) is not None:
        # Each search may look at all the rest of the text.
        work += compiled.programsize * (len(data) - at + 1)
        if work > MAX_WORK:
            raise TooLarge(f"a regular expression of a template takes too long for a text of {len(data)} bytes")
        start, end = found.span()
        if end > start or start != before:
            yield [found.span(group) for group in range(compiled.groups + 1)]
        before = end
        at = end if end > at else at + _width(data, at)


def _width(data: bytes, at: int) -> int:
    """Return the number of bytes of the character that starts here."""
    width = 1
    while at + width < len(data) and data[at + width] & 0xC0 == 0x80:
        width += 1
    return width


def count_matches(pattern: str, text: str) -> int:
    return sum(1 for _ in _matches(_compile(pattern), text))


def replace_matches(pattern: str, text: str, new: str, *, is_literal: bool = False) -> str:
    """Replace all matches; `$1` and `${name}` in the new text stand for groups unless it is literal."""
    compiled = _compile(pattern)
    data, parts, end, size = text.encode("utf-8", "surrogatepass"), [], 0, 0
    expand = _constant(new) if is_literal else _expansion(new, compiled)
    for spans in _matches(compiled, text):
        start, after = spans[0]
        parts += [data[end:start], expand(data, spans)]
        size += len(parts[-1]) + len(parts[-2])
        check_length(size)
        end = after
    return b"".join([*parts, data[end:]]).decode("utf-8", "surrogatepass") if parts else text


Expand = Callable[[bytes, Spans], bytes]


def _constant(new: str) -> Expand:
    data = new.encode("utf-8", "surrogatepass")
    return lambda *_: data


def _expansion(template: str, compiled: Any) -> Expand:
    """Parse the new text into what it takes from a match: texts, and numbers of groups."""
    pieces: list[bytes | int] = []
    end = 0
    for found in _REFERENCE.finditer(template):
        pieces.append(template[end : found.start()].encode("utf-8", "surrogatepass"))
        pieces.append(b"$" if found[1] else _group(compiled, found[2] or found[3]))
        end = found.end()
    pieces.append(template[end:].encode("utf-8", "surrogatepass"))

    def expand(data: bytes, spans: Spans) -> bytes:
        return b"".join(
            piece if isinstance(piece, bytes) else data[max(spans[piece][0], 0) : max(spans[piece][1], 0)]
            for piece in pieces
        )

    return expand


def _group(compiled: Any, name: str) -> int | bytes:
    """Return the number of a group; no text for a group that the pattern lacks."""
    if name.isascii() and name.isdecimal():
        is_number = name[0] != "0" or name == "0"
        return int(name) if is_number and len(name) < 10 and int(name) <= compiled.groups else b""
    numbers: dict[bytes, int] = dict(compiled.groupindex)
    return numbers.get(name.encode("utf-8", "replace"), b"")
