"""`| unpack`: the strings of a JSON object as labels, and its member `_entry` as the line.

What always holds: labels are set only if there is an `_entry`, all of them at once; a line that is no object gets
JSONParserErr and stays as it is.
"""

from __future__ import annotations

from lakerunner.logql.stages.hints import ParserHints
from lakerunner.logql.stages.json_scan import BAD_ESCAPE, JsonFault, JsonKind, ObjectEnds, members, unescape
from lakerunner.logql.stages.line_labels import LineLabels
from lakerunner.logql.stages.parsed import JSON_ERROR, label_name, name_to_set, readable, set_error
from lakerunner.logql.stages.stage_run import StageContext, StageRun
from lakerunner.logql.text.syntax import Unpack

_ENTRY = "_entry"
_NO_OBJECT = "expecting json object(6), but it is not"


def compile_unpack(stage: Unpack, context: StageContext) -> StageRun:  # noqa: ARG001
    hints = context.hints

    def run(timestamp_ns: int, line: str, labels: LineLabels) -> str:  # noqa: ARG001
        if not line or hints.skips_parsers(labels):
            return line
        if line[0] != "{":
            set_error(labels, hints, JSON_ERROR, _NO_OBJECT)
            return line
        try:
            return _unpacked(line, labels, hints)
        except JsonFault as fault:
            set_error(labels, hints, JSON_ERROR, str(fault))
            return line

    return run


def _unpacked(line: str, labels: LineLabels, hints: ParserHints) -> str:
    """Set the labels and return the entry, the line itself if it has none."""
    entry: str | None = None
    found: list[tuple[str, str]] = []
    for key, value in members(line, 0, len(line), ObjectEnds(line)):
        if value.kind is not JsonKind.STRING:
            continue
        text = line[value.start : value.end]
        if key == _ENTRY:
            entry = unescape(text)
            if entry is None:
                raise JsonFault(BAD_ESCAPE)
        elif own := name_to_set(labels, hints, key):  # by the key itself: it is made a name only then
            found.append((label_name(own), readable(unescape(text) or "")))
    if entry is None:
        return line
    for name, text in found:
        labels.set_parsed(name, text)
    return entry
