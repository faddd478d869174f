"""`| json label="path"`: the values at these paths of the line.

Comes in: paths such as `a.b[0]["c d"]`. Goes out: a label for each; an object or array as it is written, null and what
the line does not have as "". What always holds: the first value at a path counts, and what follows the last of them is
not read. A line that is no JSON at all gets JSONParserErr; a fault behind the start only hides what follows it.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator

from lakerunner.logql.stages.hints import ParserHints
from lakerunner.logql.stages.json_scan import (
    MALFORMED,
    JsonFault,
    JsonKind,
    block_end,
    elements,
    next_token,
    string_end,
    unescape,
    value_at,
)
from lakerunner.logql.stages.line_labels import EXTRACTED, LineLabels
from lakerunner.logql.stages.parsed import JSON_ERROR, readable, set_error
from lakerunner.logql.stages.path_syntax import parse_json_path
from lakerunner.logql.stages.stage_run import StageContext, StageRun
from lakerunner.logql.text.syntax import Json

Path = tuple[str, ...]  # keys, and indexes as "[0]"
_Found = tuple[int, JsonKind, str] | JsonFault  # the number of the path, and the value


def compile_paths(stage: Json, context: StageContext) -> StageRun:
    names = [one.label for one in stage.extractions]
    paths = [parse_json_path(one.path) for one in stage.extractions]
    hints = context.hints

    def run(timestamp_ns: int, line: str, labels: LineLabels) -> str:  # noqa: ARG001
        if not line or hints.skips_parsers(labels):
            return line
        if line[0] not in '"{[':
            set_error(labels, hints, JSON_ERROR)
            return line
        matches = 0
        for found in _Walk(line, paths).values():
            matches += _set_value(found, names, labels, hints)
        if matches < len(names):
            for name in names:
                if labels.get(name) is None:
                    labels.set_parsed(name, "")
        return line

    return run


def _set_value(found: _Found, names: list[str], labels: LineLabels, hints: ParserHints) -> bool:
    if isinstance(found, JsonFault):
        set_error(labels, hints, JSON_ERROR, str(found))
        return False
    number, kind, text = found
    name = names[number]
    own = name + EXTRACTED if labels.is_stored(name) else name
    if kind is JsonKind.NULL:
        value = ""
    elif kind is JsonKind.OBJECT:
        value = text
    else:
        value = readable(unescape(text) or "")
    labels.set_parsed(own, value)
    return True


class _Walk:
    """One pass over a text for several paths. `level` counts the open objects and arrays, `keys` has the key of each
    that was seen last; those beyond the longest path are not kept."""

    def __init__(self, text: str, paths: list[Path]) -> None:
        self._text = text
        self._paths = paths
        self._open = set(range(len(paths)))
        self._longest = max(map(len, paths))
        self._keys = [""] * self._longest
        self._level = 0

    def values(self) -> Iterator[_Found]:
        text, at = self._text, 0
        while self._open and 0 <= at < len(text):
            sign = text[at]
            if sign == '"':
                at = yield from self._string(at + 1)
            elif sign == "[":
                at = yield from self._array(at)
            else:
                self._level += (sign == "{") - (sign in "}]")
                at += 1

    def _string(self, start: int) -> Generator[_Found, None, int]:
        """Look at a string, which may be a key. Return the next place, -1 to stop."""
        text = self._text
        end = string_end(text, start)
        at = next_token(text, end) if end >= 0 else -1
        if at < 0 or text[at] != ":":
            return at
        key = unescape(text[start : end - 1])
        if key is None:
            return -1
        if self._level < 1:
            yield JsonFault(MALFORMED)
            return -1
        if self._level <= self._longest:
            self._keys[self._level - 1] = key
            yield from self._values_of_key(at + 1)
        return at + 1

    def _values_of_key(self, at: int) -> Iterator[_Found]:
        level = self._level
        for number in sorted(self._open):
            path = self._paths[number]
            if len(path) == level and list(path) == self._keys[:level]:
                self._open.discard(number)
                try:
                    value = value_at(self._text, at)
                except JsonFault as fault:
                    yield fault
                else:
                    yield number, value.kind, self._text[value.start : value.end]

    def _array(self, at: int) -> Generator[_Found, None, int]:
        """Look at an array. Return the place behind it, or of its closing bracket; -1 to stop."""
        level = self._level
        if level < 0:
            yield JsonFault(MALFORMED)
            return -1
        wanted = [number for number in sorted(self._open) if self._indexes_here(self._paths[number])]
        if not wanted:
            return block_end(self._text, at)
        self._level += 1
        place = at + 1
        try:
            for index, value in enumerate(elements(self._text, at)):
                place = value.behind
                for number in wanted:
                    if self._paths[number][level] == f"[{index}]":
                        self._open.discard(number)
                        text = self._text[value.start : value.end]
                        yield from _inside(number, value.kind, text, self._paths[number][level + 1 :])
        except JsonFault:
            return place
        close = next_token(self._text, place)
        return close if close >= 0 else place

    def _indexes_here(self, path: Path) -> bool:
        level = self._level
        if len(path) <= level or path[level][:1] != "[" or len(path[level]) <= 2:
            return False
        return list(path[:level]) == self._keys[:level]


def _inside(number: int, kind: JsonKind, text: str, path: Path) -> Iterator[_Found]:
    """Yield the value at the rest of a path inside an element of an array, if it is there."""
    if not path:
        yield number, kind, text
        return
    if kind is JsonKind.STRING:
        return
    for found in _Walk(text, [path]).values():
        yield found if isinstance(found, JsonFault) else (number, found[1], found[2])
