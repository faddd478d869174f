"""Line filters: `|= != |~ !~ |> !>`, each with alternatives.

What always holds: a positive filter keeps lines with one of its alternatives, a negative one lines with none. Regular
expressions are looked for in any part of the line, and a dot does not match a newline.
"""

from __future__ import annotations

from collections.abc import Callable

from lakerunner.logql.stages.ip import compile_ip
from lakerunner.logql.stages.line_labels import LineLabels
from lakerunner.logql.stages.pattern import filter_pattern
from lakerunner.logql.stages.stage_run import StageContext, StageRun
from lakerunner.logql.text.syntax import LineFilter, LinePattern
from lakerunner.model.errors import UserError
from lakerunner.model.regex import compile_search

LineTest = Callable[[str], bool]
# Loki answers these without the expression: `.*` is found in every line, `.+` in all that are not empty.
_ANY, _SOME = (".*", ""), ".+"


def compile_line_filter(stage: LineFilter, context: StageContext) -> StageRun:  # noqa: ARG001
    test = line_test(stage)

    def run(timestamp_ns: int, line: str, labels: LineLabels) -> str | None:  # noqa: ARG001
        return line if test(line) else None

    return run


def line_test(stage: LineFilter) -> LineTest:
    """Return the test of a line filter."""
    tests = tuple(_alternative(stage.op, one) for one in tested_alternatives(stage))
    if stage.is_negated:
        return lambda line: not any(test(line) for test in tests)
    return tests[0] if len(tests) == 1 else lambda line: any(test(line) for test in tests)


def tested_alternatives(stage: LineFilter) -> tuple[LinePattern, ...]:
    """Return the alternatives that decide. Loki leaves out one that every line has, unless it is the only one."""
    if stage.is_negated:
        return stage.alternatives
    return tuple(one for one in stage.alternatives if not is_always_found(stage.op, one)) or stage.alternatives[:1]


def is_always_found(op: str, pattern: LinePattern) -> bool:
    """Return whether a positive filter finds this in every line."""
    if pattern.is_ip:
        return False
    return (op == "|=" and not pattern.text) or (op == "|~" and pattern.text in _ANY)


def _alternative(op: str, pattern: LinePattern) -> LineTest:
    text = pattern.text
    if pattern.is_ip:
        if op not in ("|=", "!="):
            raise UserError("ip: invalid operation")
        return compile_ip(text)
    if op in ("|=", "!="):
        return lambda line: text in line
    if op in ("|>", "!>"):
        return filter_pattern(text).fits
    if text in _ANY:
        return lambda line: True  # noqa: ARG005
    return bool if text == _SOME else compile_search(text).found_in
