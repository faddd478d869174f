"""Parse the text of a LogQL query.

Comes in: the text. Goes out: its tree (syntax.py). What always holds: a text that Loki refuses is refused in Loki's
words, a UserError with the place in the text; no text exhausts the stack, here or in what works on the tree.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import fields, is_dataclass
from typing import Any

from lakerunner.logql.text.cursor import Cursor
from lakerunner.logql.text.lexer import END, position
from lakerunner.logql.text.metric_parse import parse_expression
from lakerunner.logql.text.printer import stage_text
from lakerunner.logql.text.syntax import (
    LabelFormat,
    LabelReplace,
    Operation,
    Pattern,
    Pipeline,
    Query,
    RangeAggregation,
    Stage,
    VectorAggregation,
)
from lakerunner.model.errors import UserError

MAX_BYTES = 131_072
MAX_MATCHERS = 256  # of all selectors of a query; each is tested for every stream
MAX_STAGES = 256  # of all pipelines of a query; each runs for every line
MAX_DEPTH = 200  # of the tree; a chain of operators is as deep as it is long
Check = Callable[[Stage], None]


def parse_logql(text: str, check: Check | None = None) -> Query:
    """Parse a query. `check` looks at each stage once the text is read, and raises UserError with the bare reason if
    it cannot run (patterns, line filters, templates, paths); the message then names the stage as Loki does. Without it
    such a stage is accepted, as by Loki's parser, and fails when it is compiled."""
    size = len(text.encode("utf-8", "surrogatepass"))
    if size >= MAX_BYTES:
        raise UserError(f"parse error : input size too long ({size} > {MAX_BYTES})")
    cursor = Cursor(text)
    query = parse_expression(cursor)
    if cursor.kind != END:
        raise cursor.unexpected()
    _refuse_depth(text, query)
    cursor.raise_fault()
    _refuse_numbers(text, query)
    for pipeline in pipelines(query):
        for stage in pipeline.stages:
            _check_stage(text, stage, check)
    return query


def pipelines(query: Query) -> Iterator[Pipeline]:
    """Yield the log queries in a query, from left to right."""
    match query:
        case Pipeline():
            yield query
        case RangeAggregation():
            yield query.lines.pipeline
        case VectorAggregation() | LabelReplace():
            yield from pipelines(query.inner)
        case Operation():
            yield from pipelines(query.left)
            yield from pipelines(query.right)


def _refuse_depth(text: str, query: Query) -> None:
    """Refuse a tree that is too deep, without recursion: this keeps everything after it from running out of stack."""
    level: list[Any] = [query]
    for _ in range(MAX_DEPTH):
        level = [inner for outer in level for inner in _parts(outer)]
        if not level:
            return
    message = (
        f"parse error : the query is more than {MAX_DEPTH} levels deep; put parentheses around parts of long chains"
    )
    raise UserError(message, position(text, query.span.start))


def _refuse_numbers(text: str, query: Query) -> None:
    """Refuse more matchers or stages than one query may have."""
    found = list(pipelines(query))
    for name, limit, count in (
        ("matchers", MAX_MATCHERS, sum(len(one.matchers) for one in found)),
        ("stages", MAX_STAGES, sum(len(one.stages) for one in found)),
    ):
        if count > limit:
            message = f"parse error : the query has {count} {name}, the limit is {limit}"
            raise UserError(message, position(text, query.span.start))


def _parts(node: Any) -> Iterator[Any]:
    """Yield the nodes in a node."""
    for field in fields(node):
        value = getattr(node, field.name)
        for item in value if isinstance(value, tuple) else (value,):
            if is_dataclass(item):
                yield item


def _check_stage(text: str, stage: Stage, check: Check | None) -> None:
    try:
        if isinstance(stage, LabelFormat):
            _check_assignments(stage)
        if check is not None:
            check(stage)
    except UserError as error:
        about = "invalid pattern parser:" if isinstance(stage, Pattern) else f"stage '{stage_text(stage)}' :"
        raise UserError(f"parse error : {about} {error.message}", position(text, stage.span.start)) from None


def _check_assignments(stage: LabelFormat) -> None:
    """Refuse a label that is set twice in one stage: it would be unclear which value the second one sees."""
    known: set[str] = set()
    for assignment in stage.assignments:
        if assignment.label == "__error__":
            raise UserError(f"{assignment.label} cannot be formatted")
        if assignment.label in known:
            raise UserError(f"multiple label name '{assignment.label}' not allowed in a single format operation")
        known.add(assignment.label)
