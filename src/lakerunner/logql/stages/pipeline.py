"""The stages of a pipeline as one function of a line. `STAGES` is the table of all stages.

Comes in: the stages of a query, as they were written. Goes out: a `LinePipeline`, compiled once for a query and run for
each line. What always holds: line filters run before other stages where Loki moves them: to the front, or
behind the label filter, line_format or unpack that stands before them. They see the line before decolorize, therefore.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from lakerunner.logql.stages.decolorize import compile_decolorize
from lakerunner.logql.stages.drop_keep import compile_drop, compile_keep
from lakerunner.logql.stages.formats import (
    compile_label_format,
    compile_line_format,
    names_of_label_format,
    names_of_line_format,
)
from lakerunner.logql.stages.hints import NO_HINTS, ParserHints
from lakerunner.logql.stages.json_parser import compile_json
from lakerunner.logql.stages.label_filter import compile_label_filter, names_of_test
from lakerunner.logql.stages.line_filter import compile_line_filter
from lakerunner.logql.stages.line_labels import LineLabels
from lakerunner.logql.stages.logfmt import compile_logfmt
from lakerunner.logql.stages.pattern import compile_pattern
from lakerunner.logql.stages.regexp import compile_regexp
from lakerunner.logql.stages.stage_run import StageContext, StageRun
from lakerunner.logql.stages.unpack import compile_unpack
from lakerunner.logql.text.syntax import (
    Decolorize,
    Drop,
    Json,
    Keep,
    LabelFilter,
    LabelFormat,
    LineFilter,
    LineFormat,
    Logfmt,
    Pattern,
    Regexp,
    Stage,
    Unpack,
)


def _no_names(stage: Any) -> tuple[str, ...]:  # noqa: ARG001
    return ()


@dataclass(frozen=True, slots=True)
class StageKind:
    """`names` returns the labels that a stage reads, which parsers before it must extract. Line filters do not move
    before a stage that `holds_filters`."""

    compile: Callable[[Any, StageContext], StageRun]
    names: Callable[[Any], tuple[str, ...]] = _no_names
    holds_filters: bool = False


STAGES: Mapping[type, StageKind] = {
    LineFilter: StageKind(compile_line_filter),
    Json: StageKind(compile_json),
    Logfmt: StageKind(compile_logfmt),
    Regexp: StageKind(compile_regexp),
    Pattern: StageKind(compile_pattern),
    Unpack: StageKind(compile_unpack, holds_filters=True),
    LabelFilter: StageKind(compile_label_filter, lambda stage: names_of_test(stage.test), holds_filters=True),
    LineFormat: StageKind(compile_line_format, names_of_line_format, holds_filters=True),
    LabelFormat: StageKind(compile_label_format, names_of_label_format),
    Drop: StageKind(compile_drop),
    Keep: StageKind(compile_keep),
    Decolorize: StageKind(compile_decolorize),
}


class LinePipeline:
    """Compiled stages. Not safe to use from several threads at once."""

    __slots__ = ("_runs",)

    def __init__(self, runs: tuple[StageRun, ...]) -> None:
        self._runs = runs

    def process(self, timestamp_ns: int, line: str, labels: LineLabels) -> str | None:
        """Return the line that the stages make of this one, None if one of them drops it. Change the labels."""
        for run in self._runs:
            made = run(timestamp_ns, line, labels)
            if made is None:
                return None
            line = made
        return line


def compile_stages(stages: tuple[Stage, ...], hints: ParserHints = NO_HINTS, now_ns: int = 0) -> LinePipeline:
    """Compile the stages of a query. Raise UserError for one that cannot run. `now_ns` is the query's instant."""
    context = StageContext(hints, now_ns)
    return LinePipeline(tuple(STAGES[type(stage)].compile(stage, context) for stage in in_running_order(stages)))


def check_stage(stage: Stage) -> None:
    """Raise UserError for a stage that cannot run."""
    compile_stages((stage,))


def in_running_order(stages: Iterable[Stage]) -> tuple[Stage, ...]:
    """Return the stages with line filters moved before others."""
    ordered: list[Stage] = []
    filters: list[Stage] = []
    others: list[Stage] = []
    for stage in stages:
        (filters if isinstance(stage, LineFilter) else others).append(stage)
        if STAGES[type(stage)].holds_filters:
            ordered += [*filters, *others]
            filters, others = [], []
    return (*ordered, *filters, *others)


def names_read(stages: Iterable[Stage]) -> tuple[str, ...]:
    """Return the names of the labels that the stages read."""
    return tuple(name for stage in stages for name in STAGES[type(stage)].names(stage))
