"""Regular expressions of users, matched by RE2: the same syntax and the same answers as in Prometheus.

Comes in: a pattern and values, alone or as an Arrow column. Goes out: which values match, and their groups. What always
holds: a pattern means `^(?s:pattern)$`, time is linear in the value's length, and what Go's RE2 refuses is refused in
Go's words. google-re2 compiles, matches single values and finds groups; columns go to the RE2 inside Arrow, which is
some twenty times as fast there (docs/decisions/0017). `TextSearch` is for the stages of LogQL: there a pattern is
looked for in any part of a text, and a dot does not match a newline.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import re2

from lakerunner.model.errors import TooLarge, UserError

MAX_MEMORY = 8 << 20  # bytes of a compiled pattern with its states; Arrow's limit is the same and fixed
MAX_WORK = 1_000_000_000  # of finding groups in one value: about 0.2 s
_MAX_CACHED = 64  # patterns; each may hold MAX_MEMORY
_MAX_SHOWN = 100
_MAX_LITERAL = 1000  # characters that are looked for as a pattern
_GROUP_FREE_WORK = 16  # the cost of a step without copying the bounds of groups, in groups
_ESCAPE = re.compile(r"\\Q.*?(?:\\E|\Z)|\\.", re.DOTALL)
_NAMED = re.compile(r"\(\?P?<(\w+)>")
_LONE = re.compile("[\ud800-\udfff]")  # bytes that are not UTF-8, as a query's strings hold them
# RE2's names of faults, and Go's; other faults have the same name in both.
_GO_NAMES = {
    "missing )": "missing closing )",
    "missing ]": "missing closing ]",
    "trailing \\": "trailing backslash at end of expression",
    "no argument for repetition operator": "missing argument to repetition operator",
    "bad repetition operator": "invalid nested repetition operator",
    "invalid repetition size": "invalid repeat count",
    "invalid perl operator": "invalid or unsupported Perl syntax",
    "invalid named capture group": "invalid named capture",
}


class Regex:
    """A compiled pattern that matches whole values. `names` are the numbers of the named groups; `count` is that of all
    groups."""

    def __init__(self, pattern: str, *, captures: bool) -> None:
        self.text = f"^(?s:{pattern}{_closing(pattern)})$"
        self._re2 = _compile(self.text, captures=captures)
        self.names = _names(self._re2)
        self.count: int = self._re2.groups
        self._work_per_byte = _work_per_byte(self._re2)

    def matches(self, value: str) -> bool:
        return self._re2.fullmatch(_encoded(value)) is not None

    def each(self, values: pa.Array) -> pa.Array:
        """Match each value of a column of strings."""
        return search_column(values, self.text)

    def groups(self, value: str) -> tuple[str, ...] | None:
        """Return the whole value and its groups, "" for one without a part in the match; None if nothing matches."""
        data = _encoded(value)
        _check_work(self, len(data) * self._work_per_byte, len(data))
        found = self._re2.fullmatch(data)
        return None if found is None else _parts(found, value, self.count)


class TextSearch:
    """A compiled pattern that is looked for in any part of a text. `names` are the numbers of the named groups."""

    def __init__(self, text: str, *, captures: bool) -> None:
        self.text = text
        self._re2 = _compile(text, captures=captures)
        self.names = _names(self._re2)
        self.count: int = self._re2.groups
        self._work_per_byte = _work_per_byte(self._re2)

    def found_in(self, value: str) -> bool:
        return self._re2.search(_encoded(value)) is not None

    def groups(self, value: str) -> tuple[str, ...] | None:
        """Return the first match and its groups, "" for one without a part in it; None if nothing matches."""
        data = _encoded(value)
        _check_work(self, len(data) * self._work_per_byte, len(data))
        found = self._re2.search(data)
        return None if found is None else _parts(found, value, self.count)


@lru_cache(maxsize=_MAX_CACHED)
def compile_search(pattern: str) -> TextSearch:
    """Compile the pattern of a line filter. Raise UserError with what is wrong with it."""
    _check_go_only(pattern, _names(_compile(pattern, captures=True)))
    return TextSearch(pattern, captures=False)


@lru_cache(maxsize=_MAX_CACHED)
def compile_whole_search(pattern: str) -> TextSearch:
    """Compile the pattern of a label filter, which must match the whole value. Raise UserError if it is wrong."""
    _check_go_only(pattern, _names(_compile(pattern, captures=True)))
    return TextSearch(f"^(?:{pattern}{_closing(pattern)})$", captures=False)


@lru_cache(maxsize=_MAX_CACHED)
def compile_group_search(pattern: str) -> TextSearch:
    """Compile a pattern whose groups are needed. Raise UserError with what is wrong with it."""
    search = TextSearch(pattern, captures=True)
    _check_go_only(pattern, search.names)
    return search


def repeated_group_name(pattern: str) -> str | None:
    """Return a name that two groups have, which Go allows and RE2 in C++ does not; None if there is none."""
    names = _NAMED.findall(_ESCAPE.sub("", pattern))
    return next((name for place, name in enumerate(names) if name in names[:place]), None)


@lru_cache(maxsize=_MAX_CACHED)
def compile_regex(pattern: str) -> Regex:
    """Compile the pattern of a matcher. Raise UserError with what is wrong with it."""
    _check_go_only(pattern, _names(_compile(pattern, captures=True)))
    return Regex(pattern, captures=False)


@lru_cache(maxsize=_MAX_CACHED)
def compile_capturing(pattern: str) -> Regex:
    """Compile a pattern whose groups are needed.

    Like Prometheus' label_replace, this looks at it only between the parentheses: `a)(b` is a pattern here.
    """
    regex = Regex(pattern, captures=True)
    _check_go_only(pattern, regex.names)
    if repeated_group_name(pattern):  # $name means the first of them that takes part, which RE2 does not report
        raise _fault("invalid named capture", pattern)
    return regex


def search_column(values: pa.Array, pattern: str, *, ignore_case: bool = False) -> pa.Array:
    """Find the pattern anywhere in each value. Raise UserError for a pattern that is wrong."""
    try:
        return pc.match_substring_regex(values, pattern, ignore_case=ignore_case)
    except pa.ArrowInvalid as error:
        raise UserError(str(error)) from error


def find_text(values: pa.Array, text: str) -> pa.Array:
    """Find the text anywhere in each value, in a quarter of the time that Arrow's own search for texts takes."""
    if len(text) > _MAX_LITERAL:
        return pc.match_substring(values, text.encode())
    return pc.match_substring_regex(values, re2.escape(text))


def _work_per_byte(compiled_pattern: Any) -> int:
    work: int = compiled_pattern.programsize * (compiled_pattern.groups + _GROUP_FREE_WORK)
    return work


def _check_work(regex: Regex | TextSearch, work: int, length: int) -> None:
    if work > MAX_WORK:
        raise TooLarge(
            f"finding the {regex.count} groups of a regular expression in a value of {length} bytes takes too long: "
            f"make it simpler, or its groups fewer: `{_shortened(regex.text)}`"
        )


def _parts(found: Any, value: str, count: int) -> tuple[str, ...]:
    """Return the whole match and its groups; a group without a part in it, whose span is (-1, -1), is empty."""
    spans = map(found.span, range(count + 1))
    if value.isascii():
        return tuple(value[start:end] for start, end in spans)
    whole = value.encode("utf-8", "surrogatepass")
    return tuple(whole[start:end].decode("utf-8", "surrogatepass") for start, end in spans)


def _names(compiled_pattern: Any) -> dict[str, int]:
    return {name.decode(): number for name, number in compiled_pattern.groupindex.items()}


def _check_go_only(pattern: str, names: Iterable[str]) -> None:
    r"""Refuse what RE2 accepts in C++ but not in Go: \C, which is one byte, and names of groups beyond ASCII."""
    if "\\C" in _ESCAPE.findall(pattern):
        raise _fault("invalid escape sequence", "\\C")
    for name in names:
        if not name.isascii():
            raise _fault("invalid named capture", f"(?P<{name}>")


def _closing(pattern: str) -> str:
    r"""Return the \E that is missing, where \Q quotes all up to the pattern's end."""
    last = ["", *_ESCAPE.findall(pattern)][-1]
    return "\\E" if last.startswith("\\Q") and not last.endswith("\\E") else ""


def _compile(text: str, *, captures: bool) -> Any:
    options = re2.Options()
    options.max_mem = MAX_MEMORY
    options.never_capture = not captures
    options.log_errors = False
    try:
        return re2.compile(text.encode(), options)
    except UnicodeEncodeError:
        raise _fault("invalid UTF-8", _LONE.sub("\ufffd", text)) from None
    except re2.error as error:
        kind, _, about = error.args[0].decode("utf-8", "replace").partition(": ")
        if kind.startswith("pattern too large"):
            raise _fault("expression too large", _shortened(text)) from None
        raise _fault(_GO_NAMES.get(kind, kind), about) from None
    finally:
        re2.purge()  # our own caches hold patterns: the library would hold them twice


def _fault(kind: str, about: str) -> UserError:
    return UserError(f"error parsing regexp: {kind}: `{about}`")


def _shortened(text: str) -> str:
    return text if len(text) <= _MAX_SHOWN else f"{text[:_MAX_SHOWN]}..."


def _encoded(value: str) -> bytes:
    """Return the value in UTF-8, with U+FFFD for each byte that is not: Go matches it so, and it has as many bytes as
    the lone surrogate that stands for that byte."""
    return (value if value.isascii() else _LONE.sub("\ufffd", value)).encode()
