"""Stages over columns: which rows a filter keeps, and the labels that a parser extracts. `COLUMN_STAGES` is the table.

Comes in: `LineColumns`, which a stage changes. What always holds: rows that are not odd are as the row stage leaves
them, and have no error. Where a row stage would set one, or do what columns cannot, the row becomes odd, and the row
stages read it from its start. A stage without a column version is no fault: `split_stages` leaves the query to rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakerunner.logql.columns.column_parsers import ColumnStage, json_parser, logfmt_parser, pattern_parser
from lakerunner.logql.columns.line_columns import LineColumns, joint_codes
from lakerunner.logql.stages.hints import NO_HINTS, ParserHints
from lakerunner.logql.stages.label_filter import LabelsTest, labels_test
from lakerunner.logql.stages.line_filter import line_test, tested_alternatives
from lakerunner.logql.stages.line_labels import LineLabels
from lakerunner.logql.stages.pipeline import in_running_order
from lakerunner.logql.text.syntax import (
    AmountTest,
    Both,
    Decolorize,
    Drop,
    Either,
    IpTest,
    Json,
    Keep,
    LabelFilter,
    LabelFormat,
    LabelTest,
    LineFilter,
    LineFormat,
    Logfmt,
    Pattern,
    Stage,
    TextTest,
    Unpack,
)
from lakerunner.model.regex import compile_search, find_text, search_column

_NO_LABELS: Mapping[str, str] = {}
_SEEN_IN_TEMPLATES = ("__line__", "__timestamp__")  # what labels alone do not determine


# ---- line filters


def line_filter(stage: LineFilter, hints: ParserHints) -> ColumnStage | None:  # noqa: ARG001
    mask_of = _line_mask(stage)

    def run(columns: LineColumns) -> None:
        columns.keep(mask_of(columns.lines))

    return run


# Returns for each line whether it passes.
LineMask = Callable[[pa.Array], Any]


def stored_line_masks(stages: Iterable[Stage]) -> tuple[LineMask, ...]:
    """Return the tests of the line filters that see lines as they were stored."""
    found = []
    for stage in stages:
        if isinstance(stage, (LineFormat, Unpack, Decolorize)):
            break
        if isinstance(stage, LineFilter):
            found.append(_line_mask(stage))
    return tuple(found)


def _line_mask(stage: LineFilter) -> LineMask:
    patterns = tested_alternatives(stage)
    if stage.op in ("|>", "!>") or any(one.is_ip for one in patterns):
        test = line_test(stage)
        return lambda lines: np.fromiter(map(test, lines.to_pylist()), np.bool_, len(lines))
    find = _find_text if stage.op in ("|=", "!=") else _find_regex

    def mask(lines: pa.Array) -> Any:
        found = np.zeros(len(lines), np.bool_)
        for one in patterns:
            found |= find(lines, one.text)
        return ~found if stage.is_negated else found

    return mask


def _find_text(lines: pa.Array, text: str) -> Any:
    if not text:
        return np.ones(len(lines), np.bool_)
    if any("\ud800" <= sign <= "\udfff" for sign in text):  # bytes that are not UTF-8, which only odd lines have
        return np.zeros(len(lines), np.bool_)
    return _booleans(find_text(lines, text))


def _find_regex(lines: pa.Array, pattern: str) -> Any:
    if pattern in ("", ".*"):
        return np.ones(len(lines), np.bool_)
    if pattern == ".+":
        return pc.binary_length(lines).to_numpy(zero_copy_only=False) > 0
    return _booleans(search_column(lines, compile_search(pattern).text))


def _booleans(found: pa.Array) -> Any:
    return found.to_numpy(zero_copy_only=False)


# ---- label filters


def label_filter(stage: LabelFilter, hints: ParserHints) -> ColumnStage | None:  # noqa: ARG001
    test = _outcome(stage.test)

    def run(columns: LineColumns) -> None:
        passes, fails = test(columns)
        columns.odd |= fails
        columns.keep(passes)

    return run


# Returns for each row whether it passes, and whether the row stage would set an error.
_Outcome = Callable[[LineColumns], tuple[Any, Any]]


def _outcome(test: LabelTest) -> _Outcome:
    match test:
        case Both() | Either():
            left, right = _outcome(test.left), _outcome(test.right)
            return lambda columns: _joined(left(columns), right(columns), is_either=isinstance(test, Either))
        case TextTest() | AmountTest() | IpTest():
            names, run = _names(test), labels_test(test)
            return lambda columns: _tested(columns, names, run)


def _joined(left: tuple[Any, Any], right: tuple[Any, Any], *, is_either: bool) -> tuple[Any, Any]:
    """Join two outcomes. The right side of `or` is looked at only where the left one does not pass."""
    if is_either:
        return left[0] | right[0], left[1] | (right[1] & ~left[0])
    return left[0] & right[0], left[1] | right[1]


def _names(test: TextTest | AmountTest | IpTest) -> str:
    return test.matcher.name if isinstance(test, TextTest) else test.label


def _tested(columns: LineColumns, name: str, test: LabelsTest) -> tuple[Any, Any]:
    """Run the row test once for each value of the label."""
    values, codes = _label_values(columns, name)
    passes, fails = np.zeros(len(values), np.bool_), np.zeros(len(values), np.bool_)
    for number, value in enumerate(values):
        labels = LineLabels(_NO_LABELS if value is None else {name: value}, _NO_LABELS)
        passes[number] = test(labels)
        fails[number] = bool(labels.error)
    return passes[codes], fails[codes]


def _label_values(columns: LineColumns, name: str) -> tuple[list[str | None], Any]:
    """Return the values of a label, None where there is none, and for each row the number of its own."""
    stored = [LineLabels(*base).get(name) for base in columns.bases]
    distinct = {value: number for number, value in enumerate(dict.fromkeys(stored))}
    codes = np.array([distinct[value] for value in stored], np.int64)[columns.base_codes]
    parsed = columns.parsed.get(name)
    if parsed is None:
        return list(distinct), codes
    # A parsed label stands before a stored one of its name.
    both, first = joint_codes([parsed, codes])
    known = list(distinct)
    own = parsed.take(pa.array(first)).to_pylist()
    return [known[codes[row]] if value is None else value for value, row in zip(own, first, strict=True)], both


# ---- the table


@dataclass(frozen=True, slots=True)
class ColumnKind:
    """`compile` returns None for a stage of its kind that only rows can run."""

    compile: Callable[[Any, ParserHints], ColumnStage | None]
    reads_line: bool = False


COLUMN_STAGES: Mapping[type, ColumnKind] = {
    LineFilter: ColumnKind(line_filter, reads_line=True),
    LabelFilter: ColumnKind(label_filter),
    Json: ColumnKind(json_parser, reads_line=True),
    Logfmt: ColumnKind(logfmt_parser, reads_line=True),
    Pattern: ColumnKind(pattern_parser, reads_line=True),
}
# Stages that see nothing but labels: they run by rows, once for all rows of equal labels.
_OF_LABELS = (LabelFilter, LabelFormat, Drop, Keep)


@dataclass(frozen=True)
class SplitStages:
    """Stages that run over columns, and those behind them that run once for each set of labels. `parses_line`: a stage
    other than a line filter reads the line."""

    filters: tuple[ColumnStage, ...]
    others: tuple[ColumnStage, ...]
    of_labels: tuple[Stage, ...]
    reads_line: bool
    parses_line: bool


def split_stages(stages: Iterable[Stage], hints: ParserHints) -> SplitStages | None:
    """Split the stages of a query; None if it has one that only runs by rows. Line filters come first: no stage that
    runs here changes a line, and they set no errors."""
    filters: list[ColumnStage] = []
    others: list[ColumnStage] = []
    of_labels: list[Stage] = []
    reads_line = parses_line = False
    for stage in in_running_order(tuple(stages)):
        kind = COLUMN_STAGES.get(type(stage))
        if of_labels and not isinstance(stage, LineFilter):
            kind = None
        compiled = kind.compile(stage, hints) if kind else None
        if kind and compiled:
            (filters if isinstance(stage, LineFilter) else others).append(compiled)
            reads_line |= kind.reads_line
            parses_line |= kind.reads_line and not isinstance(stage, LineFilter)
        elif isinstance(stage, _OF_LABELS) and not _needs_line(stage):
            of_labels.append(stage)
        else:
            return None
    return SplitStages(tuple(filters), tuple(others), tuple(of_labels), reads_line, parses_line)


def leave_to_rows(stages: Iterable[Stage]) -> SplitStages:
    """Return stages of which only the line filters run over columns. None of the stages may change the line."""
    filters = (line_filter(stage, NO_HINTS) for stage in stages if isinstance(stage, LineFilter))
    return SplitStages(tuple(filter(None, filters)), (_mark_all_odd,), (), reads_line=True, parses_line=True)


def _mark_all_odd(columns: LineColumns) -> None:
    columns.odd[:] = True


def _needs_line(stage: Stage) -> bool:
    return isinstance(stage, LabelFormat) and any(
        seen in one.value for one in stage.assignments for seen in _SEEN_IN_TEMPLATES
    )
