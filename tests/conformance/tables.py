"""Run tables of LogQL: files of JSON with a case in each line, of the kinds that Loki's Go packages test by tables.

Comes in: a file whose name tells its kind: `stages.jsonl`, `more_stages.jsonl`. Goes out: its rows, and what is wrong
with each. What always holds: a file of no kind we know is refused. Bytes that are not UTF-8 are carried through.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from conformance.notation import ScriptError
from conformance.script import ScriptItem
from lakerunner.logql.stages.hints import NO_HINTS, LabelNeeds, ParserHints, hints_of
from lakerunner.logql.stages.line_labels import LineLabels
from lakerunner.logql.stages.pipeline import compile_stages
from lakerunner.logql.text.parse import parse_logql
from lakerunner.logql.text.pretty import format_query
from lakerunner.logql.text.printer import exact_text, query_text
from lakerunner.logql.text.syntax import Extraction, Json, Pipeline, Stage
from lakerunner.model.errors import UserError
from lakerunner.model.streams.line_level import json_level, line_level
from lakerunner.model.streams.log_record import (
    DETECTED_LEVEL,
    LOKI_STREAM,
    RecordFields,
    Resource,
    metadata_of,
    stream_of,
)
from lakerunner.model.streams.stream_rules import DEFAULT_RULES

Fields = Mapping[str, Any]
# Go's test of label_format gives every row this line and time, which the table does not repeat.
_LABEL_FORMAT_LINE, _LABEL_FORMAT_TIME = "test line", 1_661_518_453_244_672_570

_NOW = 1_767_225_600_000_000_000
_NARROW = 20  # Go's tests format queries for lines of this length


@dataclass(frozen=True)
class TableRow(ScriptItem):
    fields: Fields


def read_table(path: Path) -> list[TableRow]:
    kind_of_table(path)
    rows = []
    for number, line in enumerate(path.read_bytes().decode("utf-8", "surrogateescape").split("\n"), 1):
        if line.strip():
            try:
                fields = json.loads(line)
            except ValueError as error:
                raise ScriptError(f"{path}:{number}: {error}") from None
            rows.append(TableRow(path, number, _title(fields), fields))
    return rows


def is_table(path: Path) -> bool:
    return bool(_kinds_of(path))


def kind_of_table(path: Path) -> str:
    """Return the kind that the name of a file ends with."""
    found = _kinds_of(path)
    if not found:
        raise ScriptError(f"{path}: a table of no kind we have ({', '.join(TABLES)})")
    return max(found, key=len)


def _kinds_of(path: Path) -> list[str]:
    return [kind for kind in TABLES if re.fullmatch(rf"(?:.*[_.-])?{kind}", path.stem)]


def problem_of_row(row: TableRow) -> str | None:
    """Return what is wrong with the answer to this row; None if nothing is."""
    return TABLES[kind_of_table(row.path)](row.fields)


def _title(fields: Fields) -> str:
    named = (fields.get(name) for name in ("query", "stage", "pattern", "ip", "name", "word"))
    return next((str(one) for one in named if one), "")


# ---- texts


def _parse(row: Fields) -> str | None:
    try:
        query = parse_logql(row["query"])
    except UserError as error:
        if row["valid"]:
            return f"refused: {error.message}"
        wanted = row.get("error")
        return None if wanted in (None, error.message) else f"expected {wanted!r}, got {error.message!r}"
    if not row["valid"]:
        return f"parsed, though it should fail: {row.get('error', 'in any way')}"
    return _differs(query_text(query), query_text(parse_logql(exact_text(query))))


def _stringer(row: Fields) -> str | None:
    return _differs(row["string"], query_text(parse_logql(row["query"])))


def _format_query(row: Fields) -> str | None:
    return _differs(row["pretty"], format_query(parse_logql(row["query"]), _NARROW))


# ---- stages


@dataclass(frozen=True)
class _Line:
    """What comes in with a line, in one table or the other."""

    text: str
    stream: Mapping[str, str]
    metadata: Mapping[str, str]
    time: int = 0


def _processed(query: str, line: _Line, hints: Fields | None = None) -> tuple[str | None, dict[str, str]]:
    """Return what the stages make of a line, None if they drop it, and all of its labels."""
    pipeline = _parsed(query)
    labels = LineLabels(line.stream, line.metadata)
    text = compile_stages(pipeline, _hints(hints), _NOW).process(line.time, line.text, labels)
    stream, metadata, parsed = labels.by_kind()
    return text, {**stream, **metadata, **parsed}


def _parsed(query: str) -> tuple[Stage, ...]:
    """Parse the stages of a query. Go's tables hold values, not texts: there a label may have a reserved name."""
    pipeline = parse_logql(re.sub(r"^(.* \| json )bool=", r"\1reserved_bool=", query))
    assert isinstance(pipeline, Pipeline), query
    return tuple(
        replace(stage, extractions=tuple(map(_renamed, stage.extractions))) if isinstance(stage, Json) else stage
        for stage in pipeline.stages
    )


def _renamed(one: Extraction) -> Extraction:
    return replace(one, label=one.label.removeprefix("reserved_"))


def _hints(row: Fields | None) -> ParserHints:
    if row is None:
        return NO_HINTS
    names, groups = tuple(row["required"]), tuple(row["groups"])
    return hints_of(LabelNeeds(names, groups, row["without"], not row["no_labels"], row["unwrap"]))


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def _line_filters(row: Fields) -> str | None:
    for one in row["lines"]:
        text, _ = _processed(row["query"], _Line(one["line"], {"app": "foo"}, {}))
        if (text is not None) != one["kept"]:
            return f"{one['line']!r} is {'dropped' if one['kept'] else 'kept'}"
    return None


def _stages(row: Fields) -> str | None:
    if "invalid" in row:
        return _problem_of_refusal(f'{{a="b"}} | {row["stage"]}', row["invalid"], row.get("error", ""))
    line = _Line(row["line"], row["stream"], row.get("metadata", {}))
    text, labels = _processed(f'{{a="b"}} | {row["stage"]}', line, row.get("hints"))
    wanted = row["labels"]
    if not wanted and "--strict" in row["stage"]:
        # Go's table has a second column for --strict, which is empty where it makes no difference.
        _, wanted = _processed(f'{{a="b"}} | {row["stage"].replace("--strict", "")}', line, row.get("hints"))
    return _differs(wanted, labels) or _differs(row.get("want_line", text), text)


def _formats(row: Fields) -> str | None:
    is_bare = "ts" not in row  # of label_format
    line = _Line(
        _LABEL_FORMAT_LINE if is_bare else row["line"],
        row["stream"],
        row.get("metadata", {}),
        _LABEL_FORMAT_TIME if is_bare else row["ts"],
    )
    text, labels = _processed(f'{{a="b"}} | {row["stage"]}', line)
    return _differs(row["labels"], labels) or _differs(row.get("want", text), text)


def _patterns(row: Fields) -> str | None:
    pattern = row["pattern"]
    parser = f'{{a="b"}} | pattern {_quoted(pattern)}'
    if "error" in row:
        return _problem_of_refusal(parser, row["error"] != "None", _words_of_go(row["error"]))
    names = [name for name in re.findall(r"<([A-Za-z_][A-Za-z0-9_]*)>", pattern) if name != "_"]
    _, labels = _processed(parser, _Line(row["line"], {}, {}))
    wanted = dict(zip(names, row["captures"] or (), strict=False))
    found = _differs(wanted, {name: labels.get(name, "") for name in wanted})
    # A filter has no names: its captures are all blank.
    blank = re.sub(r"<[A-Za-z_][A-Za-z0-9_]*>", "<_>", pattern)
    kept, _ = _processed(f'{{a="b"}} |> {_quoted(blank)}', _Line(row["line"], {}, {}))
    return found or _differs(row["matches"], kept is not None)


def _ip(row: Fields) -> str | None:
    query = f'{{a="b"}} |= ip({_quoted(row["ip"])})'
    if row["fails"]:
        return _problem_of_refusal(query, True, "")
    results = [_processed(query, _Line(line, {}, {}))[0] for line in row["lines"]]
    return _differs(row["kept_indexes"], [place for place, text in enumerate(results) if text is not None])


def _problem_of_refusal(query: str, expected: bool, words: str) -> str | None:
    try:
        _processed(query, _Line("", {}, {}))
    except UserError as error:
        if not expected:
            return f"refused: {error.message}"
        return None if words in error.message else f"expected {words!r} in {error.message!r}"
    return "accepted, though it should fail" if expected else None


def _words_of_go(error: str) -> str:
    """Return the known words of an error that the table holds as Go's source: `Name(text='ErrNoCapture')`."""
    formatted = re.search(r"\"(.*?)(?:: %w)?\"", error)
    if formatted:
        return formatted[1]
    return next((words for name, words in _PATTERN_ERRORS.items() if name in error), "")


_PATTERN_ERRORS = {"ErrNoCapture": "at least one capture is required", "ErrCaptureNotAllowed": "not allowed"}


# ---- levels

# The first severity number of each level; each has four.
_SEVERITIES = {"trace": 1, "debug": 5, "info": 9, "warn": 13, "error": 17, "fatal": 21}


def _levels(row: Fields) -> str | None:
    if "json" in row:
        return _differs(
            row["want"], json_level(row["json"], frozenset(row["allowedLevelFields"]), row.get("maxDepth", 0))
        )
    if "word" in row:
        return next(filter(None, (_differs(row["level"], line_level(line)) for line in _lines_with(row["word"]))), None)
    if "log" in row:
        return _differs(row["expected"], line_level(row["log"]))
    wanted = row["expectedLogLevel"]
    entry = row.get("entry") or {"StructuredMetadata": [{"Name": None, "Value": None}]}
    metadata = dict(_metadata(entry.get("StructuredMetadata") or (), wanted, row.get("name") or ""))
    return _differs(wanted, _entry_level(entry.get("Line") or "", metadata))


def _lines_with(word: str) -> list[str]:
    """Return lines with a word between each of its boundaries."""
    shapes = ("this is a {} message", "{} occurred", "an {}", "{}: x", "{}, x", "{}! x", "({}) x", "[{}] x")
    return [shape.format(one) for shape in shapes for one in (word, word.upper())]


def _entry_level(line: str, metadata: Mapping[str, str]) -> str:
    resource = stream_of(Resource({}, LOKI_STREAM), DEFAULT_RULES)
    record = RecordFields(metadata, 0, 0, 0, "", 0, 0, "", "", "")
    return metadata_of(record, resource, {}, line, DEFAULT_RULES)[DETECTED_LEVEL]


def _metadata(pairs: Any, level: str, name: str) -> Iterator[tuple[str, str]]:
    """Yield the metadata of an entry. What Go's source names by a constant is null in the table: the name is then that
    of the severity number, the value one of the expected level, at the bound that the case is named after."""
    for pair in pairs:
        number = _SEVERITIES.get(level, 0) + (3 if "upper" in name else 0)
        yield pair["Name"] or "severity_number", str(number) if pair["Value"] is None else pair["Value"]


def _differs(wanted: object, got: object) -> str | None:
    return None if wanted == got else f"expected {wanted!r}, got {got!r}"


TABLES: Mapping[str, Callable[[Fields], str | None]] = {
    "parse": _parse,
    "stringer": _stringer,
    "format_query": _format_query,
    "line_filters": _line_filters,
    "stages": _stages,
    "formats": _formats,
    "patterns": _patterns,
    "ip": _ip,
    "levels": _levels,
}
