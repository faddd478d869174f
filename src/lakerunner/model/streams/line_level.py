"""The level that a line states, found as Loki finds it.

Comes in: a line. Goes out: `trace`, `debug`, `info`, `warn`, `error`, `critical`, `fatal` or `unknown`.

A line in braces is read as JSON: the first string with a level-like key decides, in the object or in an object directly
inside it. Another line with a `=` is read as logfmt: of its level-like keys, in any case, the one that Loki lists first
decides. If that is not a known level, or there is none, the first level word between boundaries in the line decides.
Both readers are lenient: what stands before a fault counts.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

UNKNOWN = "unknown"
LEVELS: Mapping[str, str] = {
    **dict.fromkeys(("trace", "trc"), "trace"),
    **dict.fromkeys(("debug", "dbg"), "debug"),
    **dict.fromkeys(("info", "inf", "information"), "info"),
    **dict.fromkeys(("warn", "wrn", "warning"), "warn"),
    **dict.fromkeys(("error", "err"), "error"),
    "critical": "critical",
    "fatal": "fatal",
}
# Loki's names of fields that hold a level, in its order.
LEVEL_NAMES = (
    "level",
    "LEVEL",
    "Level",
    "log.level",
    "severity",
    "SEVERITY",
    "Severity",
    "SeverityText",
    "lvl",
    "LVL",
    "Lvl",
    "severity_text",
    "Severity_Text",
    "SEVERITY_TEXT",
)
JSON_DEPTH = 2
_RANKS = {name.casefold(): rank for rank, name in reversed(tuple(enumerate(LEVEL_NAMES)))}
_NAMES = frozenset(LEVEL_NAMES)

_SPACE = " \t\n\v\f\r"
_WIDE_SPACE = (
    _SPACE
    + "\x85\xa0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a\u2028\u2029\u202f\u205f\u3000"
)
_MAY_NAME = re.compile(r"level|lvl|severity|\\", re.IGNORECASE)  # a JSON key may be written with escapes
# Boundaries are Loki's. A colon bounds a word only behind it: `error: x` states a level, `type:error` does not.
_WORD = re.compile(
    r"""(?:\A|(?<=[ \t\n\[({"'=]))(trace|debug|fatal|critical|error|err|warning|warn|info)"""
    r"""(?=[ \t\n\[\](){}:,!"'=]|\Z)""",
    re.IGNORECASE | re.ASCII,
)
_PAIR = re.compile(
    r"""[\x00-\x20]*+([^\x00-\x20="\ufffd\udc80-\udcff]++)(?:"""
    r"""="((?:[^"\\]++|\\["\\/'bfnrt]|\\u[0-9a-fA-F]{4})*+)"|"""
    r"""=([^\x00-\x20="]*+)(?=[\x00-\x20]|\Z)|(?=[\x00-\x20]|\Z))"""
)


def line_level(line: str) -> str:
    """Return the level of a line."""
    stated = ""
    if is_json(line):
        if _MAY_NAME.search(line):
            stated = json_level(line)
    elif "=" in line and _MAY_NAME.search(line):
        stated = _logfmt_level(line)
    return LEVELS.get(stated.casefold()) or _word_level(line)


def is_json(line: str) -> bool:
    """Whether Loki takes the line for JSON: by its first and last character that is not white space."""
    return line.lstrip(_WIDE_SPACE)[:1] == "{" and line.rstrip(_SPACE)[-1:] == "}"


def _word_level(line: str) -> str:
    # Go's lower case of the Turkish capital letter is a plain i.
    found = _WORD.search(line.replace("\u0130", "i"))
    return LEVELS[found[1].lower()] if found else UNKNOWN


def _logfmt_level(line: str) -> str:
    """Return the value of the level-like key of the lowest rank, "" if there is none or it has no value."""
    value, best, at = "", len(LEVEL_NAMES), 0
    while (pair := _PAIR.match(line, at)) is not None:
        rank = _RANKS.get(pair[1].casefold(), best)
        if rank < best:
            value, best = pair[2] or pair[3] or "", rank
            if rank == 0:
                break
        at = pair.end()
    return value


# ---- JSON

_BLANK = re.compile(r"[ \t\n\r]*")
_STRING = re.compile(r'"((?:[^"\\]++|\\.)*+)"', re.DOTALL)
_SCALAR = re.compile(r"(?:true|false|null|[-0-9][^ \t\n\r,}\]]*)(?=[ \t\n\r,}\]])")
# Of a block only its own kind of bracket counts, outside strings; one that is not closed reaches to the end.
_IN_BLOCK = {
    "{": re.compile(r'"(?:[^"\\]++|\\.)*+(?:"|\Z)|[{}]', re.DOTALL),
    "[": re.compile(r'"(?:[^"\\]++|\\.)*+(?:"|\Z)|[\[\]]', re.DOTALL),
}
_ESCAPE = re.compile(r'\\(?:(["\\/bfnrt])|u([0-9a-fA-F]{4}))')
_CONTROLS = {"b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t"}


def json_level(line: str, names: frozenset[str] = _NAMES, depth: int = JSON_DEPTH) -> str:
    """Return the first string of an object whose key is one of these names, as it stands between its quotes; "" if
    there is none. `depth` is how many objects may be around it; 0: any number."""
    return _level_in(line, _skip_blank(line, 0), names, depth) or ""


def _level_in(text: str, at: int, names: frozenset[str], depth: int) -> str | None:
    """Return the level of the object that begins here; None if it has none, "" if the search ends here, at a fault."""
    at += 1
    while (key := _STRING.match(text, at := _skip_blank(text, at))) is not None:
        at = _skip_blank(text, key.end())
        if text[at : at + 1] != ":":
            return ""
        at = _skip_blank(text, at + 1)
        first, end = text[at : at + 1], _value_end(text, at)
        if end < 0:
            return ""
        if first == '"' and _unescaped(key[1]) in names:
            return text[at + 1 : end - 1]
        if first == "{" and depth != 1 and (found := _level_in(text, at, names, depth - 1)) is not None:
            return found
        at = _skip_blank(text, end)
        if text[at : at + 1] != ",":
            break
        at += 1
    return None if text[at : at + 1] == "}" else ""


def _value_end(text: str, at: int) -> int:
    """Return the position behind the value that begins here, -1 if it has no end or is none."""
    first = text[at : at + 1]
    if first in _IN_BLOCK:
        inside = 0
        for found in _IN_BLOCK[first].finditer(text, at):
            if found[0] in "{[":
                inside += 1
            elif found[0] in "}]":
                inside -= 1
                if not inside:
                    return found.end()
        return -1
    whole = (_STRING if first == '"' else _SCALAR).match(text, at)
    return -1 if whole is None else whole.end()


def _skip_blank(text: str, at: int) -> int:
    blank = _BLANK.match(text, at)
    return at if blank is None else blank.end()


def _unescaped(key: str) -> str:
    if "\\" not in key:
        return key
    return _ESCAPE.sub(lambda found: chr(int(found[2], 16)) if found[2] else _CONTROLS.get(found[1], found[1]), key)
