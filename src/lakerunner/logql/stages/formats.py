"""`| line_format "..."` and `| label_format a="...", b=c`: lines and labels made from templates, and labels renamed.

What always holds: a label that a stage sets is a parsed one, whatever it was made from. Where a template fails, line
and label stay as they are and the line is marked with TemplateFormatErr. A template beyond its limits ends the query.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

from lakerunner.logql.stages.line_labels import LabelKind, LineLabels
from lakerunner.logql.stages.stage_run import StageContext, StageRun
from lakerunner.logql.text.amounts import parse_bytes, parse_duration
from lakerunner.logql.text.syntax import Assignment, LabelFormat, LineFormat
from lakerunner.model.errors import UserError
from lakerunner.model.templates.signatures import STRING, TemplateFunction
from lakerunner.model.templates.template import Template, TemplateError, compile_template
from lakerunner.model.templates.template_functions import TEMPLATE_FUNCTIONS

_SECOND_NS = 1_000_000_000
_MAX_CACHED = 256  # templates; the stages of a query are compiled once for its hints and once for each part of it


def _seconds(text: str) -> float:
    """Read a duration; its whole seconds and the rest are converted apart, as in Go."""
    ns = parse_duration(text)
    whole, rest = divmod(abs(ns), _SECOND_NS)
    size = whole + rest / _SECOND_NS
    return -size if ns < 0 else size


FORMAT_FUNCTIONS: dict[str, TemplateFunction] = {
    **TEMPLATE_FUNCTIONS,
    "bytes": TemplateFunction(lambda text: float(parse_bytes(text)), (STRING,)),
    "duration": TemplateFunction(_seconds, (STRING,)),
    "duration_seconds": TemplateFunction(_seconds, (STRING,)),
}


@lru_cache(maxsize=_MAX_CACHED)
def _compile(text: str, name: str) -> Template:
    return compile_template(text, FORMAT_FUNCTIONS, name=name)


def _line_template(stage: LineFormat) -> Template:
    try:
        return _compile(stage.template, "line")
    except TemplateError as error:
        raise UserError(f"invalid line template: {error}") from None


def _label_template(assignment: Assignment) -> Template:
    try:
        return _compile(assignment.value, "label")
    except TemplateError as error:
        raise UserError(f"invalid template for label '{assignment.label}': {error}") from None


def _mark(labels: LineLabels, error: TemplateError) -> None:
    labels.error, labels.error_details = "TemplateFormatErr", str(error)


def compile_line_format(stage: LineFormat, context: StageContext) -> StageRun:
    """Compile line_format. Raise UserError for a template that is wrong."""
    template, now_ns = _line_template(stage), context.now_ns
    only = template.only_field

    def copy_label(timestamp_ns: int, line: str, labels: LineLabels) -> str:  # noqa: ARG001
        # Loki takes this short way too. It differs for `__error__`, which is no label here.
        return labels.get(only or "") or ""

    def run(timestamp_ns: int, line: str, labels: LineLabels) -> str:
        try:
            return template.render(labels.all(), line, timestamp_ns, now_ns)
        except TemplateError as error:
            _mark(labels, error)
            return line

    return run if only is None else copy_label


def names_of_line_format(stage: LineFormat) -> tuple[str, ...]:
    """Return the labels that the template reads."""
    return _line_template(stage).field_names


_Change = Callable[[int, str, LineLabels, dict[str, str]], None]


def compile_label_format(stage: LabelFormat, context: StageContext) -> StageRun:
    """Compile label_format. Raise UserError for a template that is wrong."""
    changes = tuple(
        _renaming(assignment) if assignment.is_rename else _rendering(assignment, context.now_ns)
        for assignment in stage.assignments
    )

    def run(timestamp_ns: int, line: str, labels: LineLabels) -> str:
        # All templates of a stage see the labels as the first of them finds them.
        data: dict[str, str] = {}
        for change in changes:
            change(timestamp_ns, line, labels, data)
        return line

    return run


def _renaming(assignment: Assignment) -> _Change:
    target, source = assignment.label, assignment.value

    def rename(timestamp_ns: int, line: str, labels: LineLabels, data: dict[str, str]) -> None:  # noqa: ARG001
        value = labels.get(source)
        if value is not None:
            labels.set(LabelKind.PARSED, target, value)
            labels.delete(source)

    return rename


def _rendering(assignment: Assignment, now_ns: int) -> _Change:
    target, template = assignment.label, _label_template(assignment)

    def render(timestamp_ns: int, line: str, labels: LineLabels, data: dict[str, str]) -> None:
        if not data:
            data.update(labels.all())
        try:
            value = template.render(data, line, timestamp_ns, now_ns)
        except TemplateError as error:
            _mark(labels, error)
        else:
            labels.set(LabelKind.PARSED, target, value)

    return render


def names_of_label_format(stage: LabelFormat) -> tuple[str, ...]:
    """Return the labels that the stage renames and that its templates read."""
    names: list[str] = []
    for assignment in stage.assignments:
        names += (assignment.value,) if assignment.is_rename else _label_template(assignment).field_names
    return tuple(dict.fromkeys(names))
