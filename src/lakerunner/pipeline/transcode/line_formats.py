"""Formats of a single log line: one function each, and the table of them.

Comes in: a line of text, and the time near which a date without a year lies. Goes out: the names and values in the
line, for the same guesses by name as for a JSON record; None if the line has another format. The message is not among
them: it is always the whole line. What always holds: matching takes time linear in the length of the line, because no
pattern can match the same text in two ways.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import orjson

from lakerunner.pipeline.steps.record_columns import WORDS
from lakerunner.pipeline.transcode.any_values import ABSENT
from lakerunner.pipeline.transcode.times import (
    ACCESS_LOG,
    DAY,
    FORMS,
    ISO,
    KLOG,
    LAST_NS,
    SYSLOG,
    UNKNOWN_ZONE,
    Form,
    Nanoseconds,
)

Names = tuple[str, ...]
LineFields = tuple[Names, list[Any]]
LineFormat = Callable[[str, int | None], LineFields | None]

_NOTHING: LineFields = ((), [])
# How many characters behind the time are searched for a level.
LEVEL_WINDOW = 100


def _time(form: Form, groups: Iterable[str | None], near_ns: int | None) -> Any:
    """Return the time of a form's three groups; ABSENT if OTLP cannot hold it."""
    down_to_second, fraction, zone = groups
    found = form.moment(down_to_second or "", fraction, zone, near_ns)
    return Nanoseconds(found.ns) if found is not None and 0 < found.ns <= LAST_NS else ABSENT


def _number(text: str | None) -> Any:
    """Return a number of fewer than 19 digits as an integer, other text as it is; "-" is ABSENT."""
    if not text or text == "-":
        return ABSENT
    return int(text) if len(text) < 19 and text.isascii() and text.isdecimal() else text


# ---- syslog

_SEVERITIES = ("emerg", "alert", "crit", "err", "warning", "notice", "info", "debug")
_RFC3164 = re.compile(
    rf"(?:<(\d{{1,3}})>)?{SYSLOG.pattern} (\S+)(?<!:) ([^\s:\[\]]+)(?:\[([^\s\]]*)\])?:(?: |$)", re.ASCII
)
_RFC3164_NAMES = ("timestamp", "level", "host.name", "app", "process.pid")
_ITEM = r'\[[^\s="\]]+(?: [^\s="\]]+="(?:[^"\\\]]|\\.)*")*\]'
_RFC5424 = re.compile(
    rf"<(\d{{1,3}})>1 (?:-|{ISO.pattern}) (\S+) (\S+) (\S+) (\S+) (-|(?:{_ITEM})+)(?: |$)", re.ASCII | re.S
)
_RFC5424_NAMES = ("timestamp", "level", "host.name", "app", "process.pid", "syslog.msgid")
_ITEM_PARTS = re.compile(r'\[([^\s="\]]+)|([^\s="\]]+)="((?:[^"\\\]]|\\.)*)"', re.ASCII | re.S)
_ITEM_ESCAPE = re.compile(r'\\(["\\\]])')


def _severity(priority: str | None) -> Any:
    return ABSENT if priority is None else _SEVERITIES[int(priority) & 7]


def _text_or_absent(text: str) -> Any:
    return ABSENT if text == "-" else text


def syslog_3164(line: str, near_ns: int | None) -> LineFields | None:
    """Parse `<34>Nov 17 12:00:00 host app[123]: message`, with or without the priority in front."""
    found = _RFC3164.match(line)
    if found is None or (found[1] is not None and int(found[1]) > 191):
        return None
    priority, *time, host, app, pid = found.groups()
    return _RFC3164_NAMES, [_time(SYSLOG, time, near_ns), _severity(priority), host, app, _number(pid)]


def syslog_5424(line: str, near_ns: int | None) -> LineFields | None:
    """Parse `<34>1 2026-11-17T12:00:00Z host app 123 id [item name="value"] message`."""
    found = _RFC5424.match(line)
    if found is None or int(found[1]) > 191:
        return None
    priority, *time, host, app, pid, message_id, items = found.groups()
    when = ABSENT if time[0] is None else _time(ISO, time, near_ns)
    values = [
        when,
        _severity(priority),
        _text_or_absent(host),
        _text_or_absent(app),
        _number(pid),
        _text_or_absent(message_id),
    ]
    if items == "-":
        return _RFC5424_NAMES, values
    names, item = [*_RFC5424_NAMES], ""
    for part in _ITEM_PARTS.finditer(items):
        if part[1] is not None:
            item = part[1]
        else:
            names.append(f"{item}.{part[2]}")
            values.append(_ITEM_ESCAPE.sub(r"\1", part[3]))
    return tuple(names), values


# ---- access logs

_QUOTED = r'"((?:[^"\\]|\\.)*)"'
_ACCESS = re.compile(
    rf"(\S+) \S+ (\S+) \[{ACCESS_LOG.pattern}\] {_QUOTED} (\d{{3}}) (\d+|-)(?: {_QUOTED} {_QUOTED})?(?=\s|$)",
    re.ASCII,
)
_REQUEST = re.compile(r"([A-Za-z]+) ([^\s?]*)(?:\?(\S*))? HTTP/\S+", re.ASCII)
_ACCESS_NAMES = (
    "timestamp",
    "client.address",
    "user.name",
    "http.request.method",
    "url.path",
    "url.query",
    "http.response.status_code",
    "http.response.body.size",
    "http.request.header.referer",
    "user_agent.original",
)


def access_log(line: str, near_ns: int | None) -> LineFields | None:
    """Parse a line of the common or the combined log format; more text may follow it."""
    found = _ACCESS.match(line)
    if found is None:
        return None
    address, user, *time, request, status, size, referer, agent = found.groups()
    parts = _REQUEST.fullmatch(request)
    method, path, query = parts.groups() if parts else (None, None, None)
    texts = (ABSENT if one is None else one for one in (method, path, query))
    sent = (ABSENT if one is None or one == "-" else one for one in (referer, agent))
    when = _time(ACCESS_LOG, time, near_ns)
    return _ACCESS_NAMES, [when, address, _text_or_absent(user), *texts, int(status), _number(size), *sent]


# ---- klog

_KLOG = re.compile(rf"{KLOG.pattern}\s+\d+ \S+:\d+\] ", re.ASCII)
_KLOG_LEVELS = {"I": "INFO", "W": "WARNING", "E": "ERROR", "F": "FATAL"}


def klog(line: str, near_ns: int | None) -> LineFields | None:
    """Parse `I1117 12:00:00.123456    1 file.go:10] message`."""
    found = _KLOG.match(line)
    if found is None:
        return None
    return ("timestamp", "level"), [_time(KLOG, found.groups(), near_ns), _KLOG_LEVELS[line[0]]]


# ---- logfmt

_PAIR = r'[^\s="]+=(?:"(?:[^"\\]|\\.)*"|[^\s"]*)'
_LOGFMT = re.compile(rf"{_PAIR}(?:[ \t]+{_PAIR})+[ \t]*", re.S)
_PAIRS = re.compile(r'([^\s="]+)=(?:"((?:[^"\\]|\\.)*)"|([^\s"]*))', re.S)


def logfmt(line: str, _near_ns: int | None) -> LineFields | None:
    """Parse `ts=2026-11-17T12:00:00Z level=info msg="a b"`: only pairs, at least two. Values are text."""
    if not _LOGFMT.fullmatch(line):
        return None
    names, values = [], []
    for name, quoted, plain in _PAIRS.findall(line):
        names.append(name)
        values.append(plain or (_unescaped(quoted) if "\\" in quoted else quoted))
    return tuple(names), values


def _unescaped(quoted: str) -> str:
    """Return the text with its escapes decoded, or as it is if they are not those of JSON."""
    try:
        text: str = orjson.loads(f'"{quoted}"')
    except orjson.JSONDecodeError:
        return quoted
    return text


# ---- any line that begins with a time

_WORDS = "|".join(sorted(WORDS, key=len, reverse=True))
# Anywhere in the window: a level in brackets in any case, `[core:error]`; one behind `level=`; one in capitals.
# Directly behind the time: one in any case before a colon, a closing bracket or a tab; one in capitals.
_LEVEL = re.compile(
    rf"\[[ ]?(?:\w+:)?(?i:({_WORDS}))[ ]*\]|\blevel=\"?(?i:({_WORDS}))\b|(?<![\w.=/-])({_WORDS})(?![\w./=-])", re.ASCII
)
_FIRST_LEVEL = re.compile(rf"[\s\[<(|-]*(?i:({_WORDS}))(?=[ ]*[:\]>)|]|\t)|[\s\[<(|-]*({_WORDS})(?![\w./=-])", re.ASCII)


# The attribute with the name of a time zone whose offset is unknown: the time is read as UTC.
ZONE = "time.zone"
_ZONED_NAMES = ("timestamp", "level", ZONE)
_UNKNOWN_ZONE = re.compile(UNKNOWN_ZONE, re.ASCII)


class _Opening(NamedTuple):
    form: Form
    pattern: re.Pattern[str]


_OPENINGS = tuple(
    _Opening(form, re.compile(rf"\[?{form.pattern}(?![\w:/])", re.ASCII)) for form in FORMS if form is not DAY
)


def parse_dated(line: str, near_ns: int | None) -> LineFields | None:
    """Parse a line that begins with a time of any form, perhaps in brackets, and the level behind it."""
    head = line[:1]
    if not (head.isalnum() or head == "["):
        return None
    for form, pattern in _OPENINGS:
        found = pattern.match(line)
        if found is None:
            continue
        when = _time(form, found.groups(), near_ns)
        if when is ABSENT:
            return None
        zone = _UNKNOWN_ZONE.match(line, found.end())
        if zone is not None and not found[3]:
            return _ZONED_NAMES, [when, _level_behind(line, zone.end()), zone[0].strip()]
        return ("timestamp", "level"), [when, _level_behind(line, found.end())]
    return None


def _level_behind(line: str, at: int) -> Any:
    found = _FIRST_LEVEL.match(line, at, at + LEVEL_WINDOW) or _LEVEL.search(line, at, at + LEVEL_WINDOW)
    return found[found.lastindex or 0] if found else ABSENT


def parse_undated(line: str) -> LineFields:
    """Parse the level at the beginning of a line without a time: `ERROR x`, `[error] x`, `warning: x`."""
    found = _FIRST_LEVEL.match(line, 0, LEVEL_WINDOW)
    return (("level",), [found[found.lastindex or 0]]) if found else _NOTHING


LINE_FORMATS: tuple[LineFormat, ...] = (syslog_5424, syslog_3164, access_log, klog, logfmt)
