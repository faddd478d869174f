"""`| json`: all members of the line, those of nested objects joined by `_`; arrays and null are left out.

With extractions it reads only their paths (json_path.py). What always holds: members in front of a fault are set, then
the line gets JSONParserErr; a line is read only as far as the hints require.
"""

from __future__ import annotations

from lakerunner.logql.stages.hints import ParserHints
from lakerunner.logql.stages.json_path import compile_paths
from lakerunner.logql.stages.json_scan import JsonFault, JsonKind, JsonValue, ObjectEnds, members, unescape
from lakerunner.logql.stages.line_labels import EXTRACTED, LineLabels
from lakerunner.logql.stages.parsed import JSON_ERROR, label_name, nested_label_name, readable, set_error
from lakerunner.logql.stages.stage_run import StageContext, StageRun
from lakerunner.logql.text.syntax import Json

MAX_DEPTH = 200  # each level is a call; nobody queries a deeper name


class _AllFound(Exception):
    """All required labels are extracted."""


def compile_json(stage: Json, context: StageContext) -> StageRun:
    if stage.extractions:
        return compile_paths(stage, context)
    hints = context.hints

    def run(timestamp_ns: int, line: str, labels: LineLabels) -> str:  # noqa: ARG001
        if hints.skips_parsers(labels):
            return line
        try:
            _Members(line, labels, hints).set_all(0, len(line), ())
        except _AllFound:
            return line
        except JsonFault as fault:
            set_error(labels, hints, JSON_ERROR, str(fault))
        return line

    return run


class _Members:
    """Sets the members of one line as labels."""

    __slots__ = ("_ends", "_hints", "_labels", "_line")

    def __init__(self, line: str, labels: LineLabels, hints: ParserHints) -> None:
        self._line = line
        self._labels = labels
        self._hints = hints
        self._ends = ObjectEnds(line)

    def set_all(self, start: int, end: int, path: tuple[str, ...]) -> None:
        """Set the members of the object between two places, which these keys lead to."""
        if len(path) > MAX_DEPTH:
            raise JsonFault(f"objects are nested more than {MAX_DEPTH} levels deep")
        hints = self._hints
        for key, value in members(self._line, start, end, self._ends):
            if value.kind is JsonKind.OBJECT:
                inner = (*path, key)
                if not hints.required or hints.wants_prefix(nested_label_name(inner)):
                    self.set_all(value.start, value.end, inner)
                continue
            if value.kind is not JsonKind.ARRAY and value.kind is not JsonKind.NULL:
                self._set(key, path, value)
            if hints.required and hints.is_met(self._labels):
                raise _AllFound

    def _set(self, key: str, path: tuple[str, ...], value: JsonValue) -> None:
        labels = self._labels
        name = _name_of(key, path, labels)
        if name and self._hints.wants(name) and name not in labels.extracted:
            text = self._line[value.start : value.end]
            labels.set_parsed(name, readable(unescape(text) or "") if value.kind is JsonKind.STRING else text)


def _name_of(key: str, path: tuple[str, ...], labels: LineLabels) -> str:
    """Return the name of a member's label. A nested key gets the suffix before blanks are trimmed and signs replaced,
    so that a key which ends with a blank has two underscores there, as in Loki."""
    if not path:
        name = label_name(key)
        return name + EXTRACTED if name and labels.is_stored(name) else name
    name = nested_label_name((*path, key))
    return nested_label_name((*path, key + EXTRACTED)) if labels.is_stored(name) else name
