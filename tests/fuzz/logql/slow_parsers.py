"""Parsers of the slow evaluator: json, json with paths, logfmt, regexp, pattern and unpack."""

from __future__ import annotations

import json
import re

from fuzz.logql.slow_json import Fault, read_members, read_value, skip_blank, unescaped
from fuzz.logql.slow_labels import SlowLabels, Undefined
from fuzz.logql.slow_logfmt import BadPair, read_pairs
from lakerunner.logql.text.syntax import Json, Logfmt, Pattern, Regexp

JSON_ERROR, LOGFMT_ERROR = "JSONParserErr", "LogfmtParserErr"


class _Done(Exception):
    """Everything that is needed is extracted."""


def name_of(key: str) -> str:
    key = key.strip()
    if key[:1].isdigit():
        key = "_" + key
    return "".join(sign if sign.isascii() and (sign.isalnum() or sign == "_") else "_" for sign in key)


# ---- json


def run_json(line: str, labels: SlowLabels) -> None:
    if labels.is_done:
        return
    try:
        _members(line, [], labels)
    except _Done:
        pass
    except Fault:
        labels.fail(JSON_ERROR)


def _members(text: str, path: list[str], labels: SlowLabels) -> None:
    for member in read_members(text):
        if member.kind == "object":
            inner = [*path, member.key]
            if labels.needs.wants_below(_joined(inner)):
                _members(member.raw, inner, labels)
            continue
        if member.kind not in ("array", "null"):
            value = (member.text or "") if member.kind == "string" else member.raw
            value = value.replace("\ufffd", " ") if member.kind == "string" else value
            _take(member.key, path, value, labels)
        if labels.is_done:
            raise _Done


def _take(key: str, path: list[str], value: str, labels: SlowLabels) -> None:
    if path:
        name = _joined([*path, key])
        # The suffix stands behind the key before that is made a name.
        own = _joined([*path, f"{key}_extracted"]) if labels.collides(name) else name
    else:
        name = name_of(key)
        own = f"{name}_extracted" if name and labels.collides(name) else name
    if own and labels.needs.wants(own) and own not in labels.taken:
        labels.put(own, value)


def _joined(path: list[str]) -> str:
    parts = [part.strip() for part in path if part.strip()]
    text = "_".join("".join(s if s.isascii() and (s.isalnum() or s == "_") else "_" for s in part) for part in parts)
    return f"_{text}" if text[:1].isdigit() else text


# ---- json with paths


def run_json_paths(stage: Json, line: str, labels: SlowLabels) -> None:
    """Set the values at the paths. The data of random queries have paths of one or two keys, and one index."""
    if not line or labels.is_done:
        return
    if line[0] not in '"{[':
        labels.fail(JSON_ERROR)
        return
    found = 0
    for one in stage.extractions:
        value = _at_path(line, _path(one.path))
        if value is not None:
            labels.put(f"{one.label}_extracted" if labels.collides(one.label) else one.label, value)
            found += 1
    if found < len(stage.extractions):
        for one in stage.extractions:
            if labels.get(one.label) is None:
                labels.put(one.label, "")


def _path(text: str) -> list[str | int]:
    found = re.findall(r'\["([^"]*)"\]|\[(\d+)\]|([A-Za-z_]\w*)', text)
    return [int(index) if index else key or name for key, index, name in found]


def _at_path(text: str, path: list[str | int]) -> str | None:
    """Return the value of a line that is valid JSON; paths in damaged lines are left to tests with known answers."""
    try:
        json.loads(text)
    except ValueError:
        raise Undefined("a path in a damaged line") from None
    at, kind = text, {"{": "object", "[": "array"}.get(text[0], "string")
    for part in path:
        if isinstance(part, int):
            items = _elements(at) if kind == "array" else []
            if part >= len(items):
                return None
            kind, at = items[part]
            continue
        member = next((m for m in read_members(at) if m.key == part), None) if kind == "object" else None
        if member is None:
            return None
        kind, at = member.kind, member.raw
    if kind == "null":
        return ""
    return at if kind == "object" else unescaped(at) or ""


def _elements(text: str) -> list[tuple[str, str]]:
    found, at = [], skip_blank(text, 1)
    while text[at] != "]":
        value = read_value(text, at)
        found.append((value.kind, value.raw))
        at = skip_blank(text, value.end)
        if text[at] == ",":
            at = skip_blank(text, at + 1)
    return found


# ---- logfmt


def run_logfmt(stage: Logfmt, line: str, labels: SlowLabels) -> None:
    if labels.is_done:
        return
    try:
        if stage.extractions:
            _named_pairs(stage, line, labels)
        else:
            _all_pairs(stage, line, labels)
    except BadPair:
        labels.fail(LOGFMT_ERROR)


def _all_pairs(stage: Logfmt, line: str, labels: SlowLabels) -> None:
    for key, value in read_pairs(line, raise_fault=stage.strict):
        name = name_of(key)
        if not name or not (value or stage.keep_empty):
            continue
        before = len(labels.taken)
        labels.parse(name, value.replace("\ufffd", " "))
        if len(labels.taken) > before and labels.is_done:
            return


def _named_pairs(stage: Logfmt, line: str, labels: SlowLabels) -> None:
    names = {one.label for one in stage.extractions}
    sources: dict[str, str] = {}
    for one in stage.extractions:
        sources.setdefault(one.path, one.label)
        if not labels.collides(one.label):
            labels.put(one.label, "")
    for key, value in read_pairs(line, raise_fault=stage.strict):
        name = name_of(key)
        if not name or (name not in names and (not labels.needs.wants(name) or name in labels.taken)):
            continue
        label = sources.get(name, name)
        if label not in names:
            continue
        if labels.collides(label):
            label += "_extracted"
            if label in labels.taken or not labels.needs.wants(label):
                return
        labels.put(label, value)
        if labels.is_done:
            return


# ---- regexp, pattern, unpack


def run_regexp(stage: Regexp, line: str, labels: SlowLabels) -> None:
    found = re.search(stage.pattern, line, re.ASCII)
    if found:
        names = sorted(found.re.groupindex.items(), key=lambda pair: pair[1])
        for name, number in names:
            labels.parse(name, found[number] or "")


def run_pattern(stage: Pattern, line: str, labels: SlowLabels) -> None:
    if labels.is_done or not line:
        return
    parts = [part for part in re.split(r"(<[A-Za-z_]\w*>)", stage.pattern, flags=re.ASCII) if part]
    rest = line
    for number, part in enumerate(parts):
        if not re.fullmatch(r"<[A-Za-z_]\w*>", part, re.ASCII):
            if number == 0:
                if not rest.startswith(part):
                    return
                rest = rest[len(part) :]
            continue
        behind = parts[number + 1] if number + 1 < len(parts) else None
        value, found, after = rest.partition(behind) if behind else (rest, "", "")
        if part != "<_>":
            labels.parse(part[1:-1], value)
        if not found:
            return
        rest = after


def fits_pattern(pattern: str, line: str) -> bool:
    """Return whether a line is as `|>` wants it: each literal at its first place, each capture with a character."""
    parts = [part for part in re.split("(<_>)", pattern) if part]
    if not line or not parts:
        return not line and not parts
    at = 0
    for number, part in enumerate(parts):
        if part == "<_>":
            continue
        place = line.find(part, at)
        # A literal at the very start may be found further back: Loki does not look where the line begins.
        if place < 0 or (number > 0 and place == at):
            return False
        at = place + len(part)
    return at < len(line) if parts[-1] == "<_>" else at == len(line)


def run_unpack(line: str, labels: SlowLabels) -> str:
    if not line or labels.is_done:
        return line
    if line[0] != "{":
        labels.fail(JSON_ERROR)
        return line
    entry, found = None, []
    try:
        for member in read_members(line):
            if member.kind != "string":
                continue
            if member.key == "_entry":
                if member.text is None:
                    raise Fault("escape")
                entry = member.text
                continue
            own = f"{member.key}_extracted" if labels.collides(member.key) else member.key
            if labels.needs.wants(own) and own not in labels.taken:
                found.append((name_of(own), (member.text or "").replace("\ufffd", " ")))
    except Fault:
        labels.fail(JSON_ERROR)
        return line
    if entry is None:
        return line
    for name, value in found:
        labels.put(name, value)
    return entry
