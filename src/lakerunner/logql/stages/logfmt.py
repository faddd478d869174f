"""`| logfmt`: the pairs of a line; with names, only those.

Comes in: `a=1 b="two words" c`. Goes out: a label for each pair. What always holds: a pair that cannot be read is left
out and the next one is read; with --strict the line gets LogfmtParserErr there and reading stops. Empty values are left
out unless --keep-empty is given.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from lakerunner.logql.stages.hints import ParserHints
from lakerunner.logql.stages.line_labels import EXTRACTED, LineLabels
from lakerunner.logql.stages.parsed import LOGFMT_ERROR, is_readable, label_name, name_to_set, readable, set_error
from lakerunner.logql.stages.path_syntax import parse_logfmt_key
from lakerunner.logql.stages.stage_run import StageContext, StageRun
from lakerunner.logql.text.syntax import Logfmt
from lakerunner.model.display import go_quote_character

_GAP = re.compile(r"[\x00-\x20]*")
_KEY = re.compile(r'[^\x00-\x20="]*')
_REST = re.compile(r"[^\x00-\x20]*")  # of a pair that is wrong
_QUOTED = re.compile(r'"[^"\\]*+(?:\\.[^"\\]*+)*+"', re.DOTALL)
_ESCAPE = re.compile(
    r"\\(?:u([dD][89abAB][0-9a-fA-F]{2})\\u([dD][c-fC-F][0-9a-fA-F]{2})|u([0-9a-fA-F]{4})|(.))", re.DOTALL
)
_ESCAPES = {'"': '"', "\\": "\\", "/": "/", "'": "'", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t"}


class _Fault(ValueError):
    """A pair cannot be read; `at` is where, `end` is where reading goes on."""

    def __init__(self, message: str, at: int, end: int) -> None:
        super().__init__(message)
        self.at = at
        self.end = end


def compile_logfmt(stage: Logfmt, context: StageContext) -> StageRun:
    if stage.extractions:
        return _compile_names(stage, context.hints)
    hints, strict, keep_empty = context.hints, stage.strict, stage.keep_empty

    def run(timestamp_ns: int, line: str, labels: LineLabels) -> str:  # noqa: ARG001
        if hints.skips_parsers(labels):
            return line
        try:
            for key, value in pairs(line, strict=strict):
                name = label_name(key)
                if not name or not (own := name_to_set(labels, hints, name)) or not (value or keep_empty):
                    continue
                labels.set_parsed(own, readable(value))
                if hints.required and hints.is_met(labels):
                    break
        except _Fault as fault:
            _set_fault(labels, hints, fault, line)
        return line

    return run


def _compile_names(stage: Logfmt, hints: ParserHints) -> StageRun:
    names = tuple(one.label for one in stage.extractions)
    by_key: dict[str, str] = {}
    for one in stage.extractions:
        by_key.setdefault(parse_logfmt_key(one.path), one.label)
    known = frozenset(names)

    def run(timestamp_ns: int, line: str, labels: LineLabels) -> str:  # noqa: ARG001
        if hints.skips_parsers(labels):
            return line
        for name in names:
            if not labels.is_stored(name):
                labels.set_parsed(name, "")
        try:
            for key, value in pairs(line, strict=stage.strict):
                name = label_name(key)
                if not name or (name not in known and (not hints.wants(name) or name in labels.extracted)):
                    continue
                name = by_key.get(name, name)
                if name in known and not _set_named(name, value, labels, hints):
                    break
        except _Fault as fault:
            _set_fault(labels, hints, fault, line)
        return line

    return run


def _set_named(name: str, value: str, labels: LineLabels, hints: ParserHints) -> bool:
    """Set a label that the stage names. Return whether the line must be read further."""
    if labels.is_stored(name):
        name += EXTRACTED
        if name in labels.extracted or not hints.wants(name):
            return False
    labels.set_parsed(name, value if is_readable(value) else "")
    return not hints.is_met(labels)


def _set_fault(labels: LineLabels, hints: ParserHints, fault: _Fault, line: str) -> None:
    place = len(line[: fault.at].encode("utf-8", "surrogateescape")) + 1
    set_error(labels, hints, LOGFMT_ERROR, f"logfmt syntax error at pos {place} : {fault}")


def pairs(line: str, *, strict: bool) -> Iterator[tuple[str, str]]:
    """Yield key and value of each pair, "" for a key alone. If strict, raise _Fault for one that is wrong."""
    at = 0
    while True:
        at = _GAP.match(line, at).end()  # type: ignore[union-attr]  # it matches everywhere
        if at == len(line):
            return
        try:
            key, value, at = _pair(line, at)
        except _Fault as fault:
            if strict:
                raise
            at = fault.end
        else:
            yield key, value


def _pair(line: str, start: int) -> tuple[str, str, int]:
    """Return key and value of the pair that starts here, and the place behind it."""
    end = _KEY.match(line, start).end()  # type: ignore[union-attr]  # it matches everywhere
    key, sign = line[start:end], line[end : end + 1]
    if sign == '"' or (sign == "=" and not key):
        raise _unexpected(line, end)
    if not is_readable(key):
        # A wrong key with a value takes the value with it.
        raise _Fault("invalid key", end, _behind(line, end) if sign == "=" else end)
    if sign != "=":
        return key, "", end
    at = end + 1
    if line[at : at + 1] == '"':
        value, at = _quoted(line, at)
        return key, value, at
    end = _KEY.match(line, at).end()  # type: ignore[union-attr]  # values end where keys do
    if line[end : end + 1] in ("=", '"'):
        raise _unexpected(line, end)
    return key, line[at:end], end


def _quoted(line: str, at: int) -> tuple[str, int]:
    found = _QUOTED.match(line, at)
    if not found:
        raise _Fault("unterminated quoted value", len(line), len(line))
    value = found[0][1:-1]
    if "\\" not in value:
        return value, found.end()
    try:
        return _ESCAPE.sub(_unescaped, value), found.end()
    except KeyError:
        raise _Fault("invalid quoted value", found.end(), found.end()) from None


def _unescaped(found: re.Match[str]) -> str:
    high, low, code, sign = found.groups()
    if high is not None:
        return chr(0x10000 + ((int(high, 16) - 0xD800) << 10) + int(low, 16) - 0xDC00)
    if code is not None:
        point = int(code, 16)
        return "\ufffd" if 0xD800 <= point <= 0xDFFF else chr(point)
    return _ESCAPES[sign]


def _unexpected(line: str, at: int) -> _Fault:
    return _Fault(f"unexpected {go_quote_character(line[at])}", at, _behind(line, at))


def _behind(line: str, at: int) -> int:
    return _REST.match(line, at).end()  # type: ignore[union-attr]  # it matches everywhere
