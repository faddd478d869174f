"""`| drop a, b="c"` and `| keep a, b="c"`: remove the labels that are named, or all others.

What always holds: matchers match whole values, newlines included, as those of selectors do. Only `drop` removes errors,
`__error__` and `__error_details__` each by its own name.
"""

from __future__ import annotations

from collections.abc import Callable

from lakerunner.logql.stages.line_labels import ERROR, ERROR_DETAILS, PRESERVE_ERROR, LineLabels
from lakerunner.logql.stages.stage_run import StageContext, StageRun
from lakerunner.logql.text.syntax import Drop, Keep, LabelChoice
from lakerunner.model.labels.matcher import LabelTest

_SPECIAL = frozenset((ERROR, ERROR_DETAILS, PRESERVE_ERROR))
_Removal = Callable[[LineLabels], None]


def compile_drop(stage: Drop, context: StageContext) -> StageRun:  # noqa: ARG001
    removals = [_removal(choice) for choice in stage.choices]

    def run(timestamp_ns: int, line: str, labels: LineLabels) -> str:  # noqa: ARG001
        for remove in removals:
            remove(labels)
        return line

    return run


def _removal(choice: LabelChoice) -> _Removal:
    name = choice.name
    test = _always if choice.matcher is None else LabelTest(choice.matcher)

    def remove(labels: LineLabels) -> None:
        value = labels.get(name)
        # A matcher that "" meets drops a label that is not there: a sum cannot group by it then.
        if (value is not None or choice.matcher is not None) and test(value or ""):
            labels.delete(name)

    def remove_error(labels: LineLabels) -> None:
        if test(labels.error):
            labels.error = ""

    def remove_details(labels: LineLabels) -> None:
        if test(labels.error_details):
            labels.error_details = ""

    return {ERROR: remove_error, ERROR_DETAILS: remove_details}.get(name, remove)


def _always(value: str) -> bool:  # noqa: ARG001
    return True


def compile_keep(stage: Keep, context: StageContext) -> StageRun:  # noqa: ARG001
    whole = frozenset(choice.name for choice in stage.choices if choice.matcher is None) | _SPECIAL
    tests: dict[str, list[LabelTest]] = {}
    for choice in stage.choices:
        if choice.matcher is not None:
            tests.setdefault(choice.name, []).append(LabelTest(choice.matcher))

    def run(timestamp_ns: int, line: str, labels: LineLabels) -> str:  # noqa: ARG001
        for name, value in labels.all().items():
            if name not in whole and not any(test(value) for test in tests.get(name, ())):
                labels.delete(name)
        return line

    return run
