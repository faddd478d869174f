"""The level of a row by the words of docs/formats/streams.md, character by character, for tests."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from fuzz.logql.slow_json import Fault, Member, read_members
from fuzz.logql.slow_logfmt import read_pairs

NAMES = (
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
_KNOWN = {
    "trc": "trace",
    "dbg": "debug",
    "inf": "info",
    "information": "info",
    "wrn": "warn",
    "warning": "warn",
    "err": "error",
} | {word: word for word in ("trace", "debug", "info", "warn", "error", "critical", "fatal")}
_WORDS = ("trace", "debug", "fatal", "critical", "error", "err", "warning", "warn", "info")
_BEFORE, _BEHIND = "[({\"'=", "[](){}:,!\"'="


def level_of(stream: Mapping[str, str], metadata: Mapping[str, str], line: str) -> str:
    if "detected_level" in metadata:
        return metadata["detected_level"]
    for labels in (stream, metadata):
        for name in NAMES:
            if name in labels:
                return _KNOWN.get(labels[name].lower(), labels[name])
    if "severity_number" in metadata:
        number = int(metadata["severity_number"])
        return ("trace", "debug", "info", "warn", "error", "fatal")[(number - 1) // 4] if 1 <= number <= 24 else ""
    return _of_line(line)


def _of_line(line: str) -> str:
    found = ""
    if line.strip()[:1] == "{" and line.strip()[-1:] == "}":
        found = next(_json_levels(line), "")
    elif "=" in line:
        pairs: dict[str, str] = {}
        for key, value in read_pairs(line, stop_at_fault=True):
            pairs.setdefault(key.lower(), value)
        found = next((pairs[name.lower()] for name in NAMES if name.lower() in pairs), "")
    return _KNOWN.get(found.lower()) or _first_word(line) or "unknown"


def _json_levels(line: str) -> Iterator[str]:
    try:
        for member in read_members(line):
            if member.kind == "string" and member.key in NAMES:
                yield member.text or ""
            if member.kind == "object":
                yield from _inner_levels(member)
    except Fault:
        return


def _inner_levels(member: Member) -> Iterator[str]:
    for inner in read_members(member.raw):
        if inner.kind == "string" and inner.key in NAMES:
            yield inner.text or ""


def _first_word(line: str) -> str:
    lower = line.lower()
    for at in range(len(lower)):
        if at and not (lower[at - 1].isspace() or lower[at - 1] in _BEFORE):
            continue
        for word in _WORDS:
            behind = lower[at + len(word) : at + len(word) + 1]
            if lower.startswith(word, at) and (not behind or behind.isspace() or behind in _BEHIND):
                return _KNOWN[word]
    return ""
