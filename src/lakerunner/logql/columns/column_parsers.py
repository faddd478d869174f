"""Parsers over columns: the labels that json, logfmt and pattern extract, if only some are required.

What always holds: a name that the stream or the metadata has is not set, because a parser calls it `<name>_extracted`;
rows where that is required too are odd. A label that an earlier parser found stays. A kernel stops where all required
labels are found, as the row stage does; where stored labels keep the row stage from stopping, it reads the whole line.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakerunner.logql.columns.extracted import Extracted
from lakerunner.logql.columns.json_keys import extract_json
from lakerunner.logql.columns.line_columns import LineColumns
from lakerunner.logql.columns.logfmt_keys import extract_logfmt
from lakerunner.logql.columns.pattern_parts import extract_pattern
from lakerunner.logql.stages.hints import ParserHints
from lakerunner.logql.stages.line_labels import EXTRACTED, LineLabels
from lakerunner.logql.text.syntax import Json, Logfmt, Pattern
from lakerunner.model.regex import search_column

ColumnStage = Callable[[LineColumns], None]
_Extract = Callable[[pa.Array, Sequence[str]], Extracted]
_NO_OBJECT = r"^[ \n\r\t]*[^ \n\r\t{]"
_NO_KEY = "\0"  # a name that no key of a line has: with it a kernel never finds all


def json_parser(stage: Json, hints: ParserHints) -> ColumnStage | None:
    return None if stage.extractions else _parser(extract_json, hints, _NO_OBJECT)


def logfmt_parser(stage: Logfmt, hints: ParserHints) -> ColumnStage | None:
    if stage.extractions:
        return None
    return _parser(lambda lines, names: extract_logfmt(lines, names, stage.strict, stage.keep_empty), hints)


def pattern_parser(stage: Pattern, hints: ParserHints) -> ColumnStage | None:
    return _parser(lambda lines, names: extract_pattern(lines, stage, names), hints)


def _parser(extract: _Extract, hints: ParserHints, failing: str = "") -> ColumnStage | None:
    """Return the stage. `failing` is a pattern of lines that the row stage cannot read at all."""
    if hints.no_labels:
        return _nothing
    if not hints.required:
        return None
    names = sorted(hints.required)

    def run(columns: LineColumns) -> None:
        stored = _stored(columns, names)
        found = extract(columns.lines, [*names, _NO_KEY] if stored else names)
        columns.odd |= found.odd
        rows = np.flatnonzero(found.odd)
        if failing and columns.lines is not None and len(rows):
            fails = search_column(columns.lines.take(pa.array(rows)), failing)
            columns.alike[rows] = fails.to_numpy(zero_copy_only=False)
        for name, column in found.columns.items():
            if name != _NO_KEY:
                _add(columns, name, column, stored.get(name))
        for name in stored:
            if name + EXTRACTED in hints.required:
                columns.odd |= stored[name]

    return run


def _nothing(columns: LineColumns) -> None:
    """Leave the lines unparsed, since no label is needed."""


def _stored(columns: LineColumns, names: Sequence[str]) -> dict[str, Any]:
    """Return which rows have a stored label of each name, for names that some row has."""
    found = {}
    bases = [LineLabels(*base) for base in columns.bases]
    for name in names:
        has = np.array([base.is_stored(name) for base in bases], np.bool_)
        if has.any():
            found[name] = has[columns.base_codes]
    return found


def _add(columns: LineColumns, name: str, column: pa.Array, stored: Any) -> None:
    if stored is not None:
        column = pc.if_else(pa.array(stored), pa.scalar(None, column.type), column)
    earlier = columns.parsed.get(name)
    columns.parsed[name] = column if earlier is None else pc.coalesce(earlier, column)
