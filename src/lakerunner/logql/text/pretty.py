"""Write a LogQL tree over several lines, as Loki's format_query does.

Comes in: a tree. Goes out: text in which each part that is longer than a line stands on lines of its own, two blanks
deeper than what surrounds it. Where Loki's text would mean something else (it drops the parentheses of operations, `or`
of long line filters, and empty labels of by, without and on), this keeps them.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import groupby

from lakerunner.logql.text.amounts import duration_text, prometheus_duration_text
from lakerunner.logql.text.metric_parse import BINDING
from lakerunner.logql.text.printer import LOKI, go_value, grouping_text, line_filter_texts
from lakerunner.logql.text.syntax import (
    Decolorize,
    LabelReplace,
    LineFilter,
    LogRange,
    Metric,
    Operation,
    Pipeline,
    Query,
    RangeAggregation,
    Stage,
    VectorAggregation,
)
from lakerunner.model.display import go_quote
from lakerunner.model.time import MS_NS

WIDTH = 100
_INDENT = "  "


def format_query(query: Query, width: int = WIDTH) -> str:
    """Return the query on lines of at most `width` bytes, as far as its parts can be split."""
    return _Layout(width).query(query, 0)


@dataclass(frozen=True)
class _Layout:
    width: int

    def query(self, query: Query, level: int) -> str:
        if isinstance(query, Pipeline):
            return self._pipeline(query, level)
        line = LOKI.query(query)
        if not self._is_long(line):
            return _INDENT * level + line
        match query:
            case RangeAggregation():
                return self._range_aggregation(query, level)
            case VectorAggregation():
                return self._vector_aggregation(query, level)
            case Operation():
                op = LOKI.operator(query.op, query.matching, return_bool=query.return_bool, separator=", ")
                left = self._side(query.left, level + 1, bare=_groups_left(query.left, query.op))
                right = self._side(query.right, level + 1, bare=_groups_right(query.op, query.right))
                return f"{left}\n{_INDENT * level}{op}\n{right}"
            case LabelReplace():
                texts = (query.target, query.replacement, query.source, query.pattern)
                quoted = [_INDENT * (level + 1) + go_quote(text) for text in texts]
                return self._call("label_replace", [self.query(query.inner, level + 1), *quoted], level)
            case _:
                return _INDENT * level + line

    def _side(self, query: Metric, level: int, *, bare: bool) -> str:
        """Return a side of an operation, in parentheses if it would not be read as one without them."""
        if bare or not self._is_long(LOKI.query(query)):  # on one line it has its own
            return self.query(query, level)
        indent = _INDENT * level
        return f"{indent}(\n{self.query(query, level + 1)}\n{indent})"

    def _is_long(self, line: str) -> bool:
        return len(line.encode("utf-8", "surrogateescape")) > self.width

    @staticmethod
    def _call(head: str, arguments: list[str], level: int) -> str:
        indent = _INDENT * level
        return f"{indent}{head}(\n" + ",\n".join(arguments) + f"\n{indent})"

    def _range_aggregation(self, query: RangeAggregation, level: int) -> str:
        arguments = [self._log_range(query.lines, level + 1)]
        if query.parameter is not None:
            arguments.insert(0, _INDENT * (level + 1) + go_value(query.parameter))
        grouping = grouping_text(query.grouping, ", ") if query.grouping else ""
        return self._call(query.op, arguments, level) + grouping

    def _vector_aggregation(self, query: VectorAggregation, level: int) -> str:
        arguments = [self.query(query.inner, level + 1)]
        if query.parameter is not None:
            arguments.insert(0, f"{_INDENT * (level + 1)}{query.parameter}")
        grouping = query.grouping
        is_shown = grouping is not None and (grouping.without or grouping.labels)
        shown = grouping_text(grouping, ", ") if grouping and is_shown else ""
        return self._call(query.op + shown, arguments, level)

    def _log_range(self, lines: LogRange, level: int) -> str:
        text = self._pipeline(lines.pipeline, level)
        if lines.unwrap:
            start_of_line = "\n" + _INDENT * (level + 1)
            text += start_of_line + LOKI.unwrap(lines.unwrap, start_of_line)
        text += f" [{prometheus_duration_text(lines.range)}]"
        return f"{text} offset {_offset(lines.offset)}" if lines.offset else text

    def _pipeline(self, query: Pipeline, level: int) -> str:
        line = LOKI.pipeline(query)
        if not query.stages or not self._is_long(line):
            return _INDENT * level + line
        lines = [_INDENT * level + LOKI.selector(query.matchers)]
        for are_filters, run in groupby(query.stages, key=lambda stage: isinstance(stage, LineFilter)):
            stages = list(run)
            lines += self._line_filters(stages, level + 1) if are_filters else _stage_lines(stages, level + 1)
        return "\n".join(lines)

    def _line_filters(self, filters: list[Stage], level: int) -> list[str]:
        """Return filters that follow each other. They are one stage for Loki: as many of them as fit stand on the
        first line, each other one on its own."""
        texts = [text for one in filters if isinstance(one, LineFilter) for text in line_filter_texts(one)]
        first = texts[0]
        at = 1
        while at < len(texts) and not self._is_long(f"{first} {texts[at]}"):
            first, at = f"{first} {texts[at]}", at + 1
        return [_INDENT * level + text for text in (first, *texts[at:])]


def _stage_lines(stages: list[Stage], level: int) -> list[str]:
    # Loki does not indent decolorize.
    return [("" if isinstance(stage, Decolorize) else _INDENT * level) + LOKI.stage(stage) for stage in stages]


def _offset(ns: int) -> str:
    """Return Prometheus' text; Go's where that cannot be read again: days back in time, or less than a ms."""
    text = prometheus_duration_text(ns)
    is_readable = not ns % MS_NS and (ns > 0 or text.endswith(("h", "m", "s")))
    return text if is_readable else duration_text(ns)


def _groups_left(left: Metric, op: str) -> bool:
    """Return whether the left side of an operator is read as one without parentheses."""
    if not isinstance(left, Operation):
        return True
    own, outer = BINDING[left.op], BINDING[op]
    return own > outer or (own == outer and op != "^")


def _groups_right(op: str, right: Metric) -> bool:
    if not isinstance(right, Operation):
        return True
    own, outer = BINDING[right.op], BINDING[op]
    return own > outer or (own == outer and op == "^")
