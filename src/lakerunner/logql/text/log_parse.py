"""Parse log queries: a selector, the stages of its pipeline, and the range that a metric query takes of it.

Comes in: a cursor before the selector. Goes out: the pipeline or range, with line filters in the order in which they
were written. `unwrap` ends a pipeline and stands only in ranges; the range stands before or after the stages.
"""

from __future__ import annotations

from typing import cast

from lakerunner.logql.text.cursor import Cursor
from lakerunner.logql.text.label_parse import (
    matcher_value,
    matching_operator,
    parse_call_string,
    parse_selector,
    parse_test,
)
from lakerunner.logql.text.lexer import CONVERSIONS, Lexeme
from lakerunner.logql.text.syntax import (
    Assignment,
    Conversion,
    Decolorize,
    Drop,
    Extraction,
    Json,
    Keep,
    LabelChoice,
    LabelFilter,
    LabelFormat,
    LineFilter,
    LineFormat,
    LineOperator,
    LinePattern,
    Logfmt,
    LogRange,
    Pattern,
    Pipeline,
    Regexp,
    Stage,
    Unpack,
    Unwrap,
)
from lakerunner.model.errors import UserError
from lakerunner.model.labels.matcher import Matchers, matches_empty
from lakerunner.model.regex import compile_group_search, repeated_group_name

NO_MATCHER = (
    "queries require at least one regexp or equality matcher that does not have an empty-compatible value. "
    'For instance, app=~".*" does not meet this requirement, but app=~".+" will'
)
_LINE_OPERATORS = frozenset(("|=", "!=", "|~", "!~", "|>", "!>"))
Stages = tuple[Stage, ...]


def parse_log_query(cursor: Cursor) -> Pipeline:
    """Parse a selector and the stages behind it."""
    start = cursor.peek().start
    matchers = _selector(cursor)
    stages, _ = _stages(cursor, in_range=False)
    return Pipeline(matchers, stages, cursor.span(start))


def _selector(cursor: Cursor) -> Matchers:
    start = cursor.peek().start
    matchers = parse_selector(cursor)
    if all(matches_empty(matcher) for matcher in matchers):
        cursor.fault(start, NO_MATCHER)
    return matchers


# ---- ranges


def parse_log_range(cursor: Cursor) -> LogRange:
    """Parse `{...} | stages [5m] offset 1m`, with parentheses where Loki allows them."""
    start = cursor.peek().start
    if not cursor.accept("("):
        if cursor.kind != "{":
            raise cursor.unexpected("{", "(")
        return _bare_range(cursor, start)
    cursor.enter()
    found = _in_parentheses(cursor, start)
    cursor.leave()
    return found


def _bare_range(cursor: Cursor, start: int) -> LogRange:
    matchers = _selector(cursor)
    if cursor.kind == "RANGE":
        return _range_first(cursor, start, matchers)
    stages, unwrap = _stages(cursor, in_range=True)
    pipeline = Pipeline(matchers, stages, cursor.span(start))
    if cursor.kind != "RANGE":
        raise cursor.unexpected(*(("RANGE", "|") if unwrap else ()))
    return _range_last(cursor, start, pipeline, unwrap)


def _range_first(cursor: Cursor, start: int, matchers: Matchers) -> LogRange:
    """Parse `[5m] offset 1m | stages | unwrap label`."""
    ns, offset = int(cursor.take().value), _offset(cursor)
    stages, unwrap = _stages(cursor, in_range=True)
    span = cursor.span(start)
    return LogRange(Pipeline(matchers, stages, span), ns, offset, unwrap, span)


def _range_last(cursor: Cursor, start: int, pipeline: Pipeline, unwrap: Unwrap | None) -> LogRange:
    ns, offset = int(cursor.take().value), _offset(cursor)
    return LogRange(pipeline, ns, offset, unwrap, cursor.span(start))


def _in_parentheses(cursor: Cursor, start: int) -> LogRange:
    """Parse what follows an opening parenthesis: a whole range, or a pipeline whose range stands behind them."""
    if cursor.kind == "(":
        inner = parse_log_range(cursor)
        cursor.expect(")")
        return inner
    inside = cursor.peek().start
    if cursor.kind != "{":
        raise cursor.unexpected("{", "(")
    matchers = _selector(cursor)
    if cursor.kind == "RANGE":
        whole = _range_first(cursor, inside, matchers)
        cursor.expect(")")
        return whole
    stages, unwrap = _stages(cursor, in_range=True)
    pipeline = Pipeline(matchers, stages, cursor.span(inside))
    if cursor.kind == "RANGE":
        whole = _range_last(cursor, inside, pipeline, unwrap)
        cursor.expect(")")
        return whole
    if not cursor.accept(")"):
        raise cursor.unexpected(*(("RANGE", ")", "|") if unwrap else ()))
    if cursor.kind != "RANGE":
        raise cursor.unexpected("RANGE")
    found = _range_last(cursor, start, pipeline, unwrap)
    if stages or unwrap or not cursor.accept("|"):
        return found
    # Of all stages only unwrap may follow a range behind parentheses.
    unwrap = _unwrap(cursor, cursor.expect("unwrap"))
    return LogRange(pipeline, found.range, found.offset, unwrap, cursor.span(start))


def _offset(cursor: Cursor) -> int:
    return int(cursor.expect("DURATION").value) if cursor.accept("offset") else 0


def _unwrap(cursor: Cursor, keyword: Lexeme) -> Unwrap:
    if cursor.kind in CONVERSIONS:
        conversion = cast(Conversion, cursor.take().value)
        cursor.expect("(")
        label = cursor.expect("IDENTIFIER").text
        cursor.expect(")")
    else:
        conversion, label = "", cursor.expect("IDENTIFIER", *CONVERSIONS).text
    span = cursor.span(keyword.start)
    filters = []
    while pipe := cursor.accept("|"):
        test = parse_test(cursor)
        filters.append(LabelFilter(test, cursor.span(pipe.start)))
    return Unwrap(label, conversion, tuple(filters), span)


# ---- stages


def _stages(cursor: Cursor, *, in_range: bool) -> tuple[Stages, Unwrap | None]:
    stages: list[Stage] = []
    while True:
        if cursor.kind in _LINE_OPERATORS:
            stages.append(_line_filter(cursor))
        elif pipe := cursor.accept("|"):
            if in_range and (keyword := cursor.accept("unwrap")):
                return tuple(stages), _unwrap(cursor, keyword)
            stages.append(_stage(cursor, pipe.start))
        else:
            return tuple(stages), None


def _line_filter(cursor: Cursor) -> LineFilter:
    op = cursor.take()
    alternatives = [_line_pattern(cursor)]
    while cursor.accept("or"):
        alternatives.append(_line_pattern(cursor))
    return LineFilter(cast(LineOperator, op.kind), tuple(alternatives), cursor.span(op.start))


def _line_pattern(cursor: Cursor) -> LinePattern:
    if cursor.accept("ip"):
        return LinePattern(parse_call_string(cursor), is_ip=True)
    return LinePattern(cursor.expect("STRING", "ip").name)


def _stage(cursor: Cursor, start: int) -> Stage:
    """Parse what stands behind a pipe."""
    if cursor.kind in ("IDENTIFIER", "("):
        test = parse_test(cursor)
        return LabelFilter(test, cursor.span(start))
    match cursor.kind:
        case "json":
            cursor.take()
            return Json(_extractions(cursor), cursor.span(start))
        case "logfmt":
            cursor.take()
            return _logfmt(cursor, start)
        case "regexp":
            cursor.take()
            pattern = cursor.expect("STRING")
            _check_captures(cursor, pattern)
            return Regexp(pattern.name, cursor.span(start))
        case "pattern":
            cursor.take()
            return Pattern(cursor.expect("STRING").name, cursor.span(start))
        case "unpack":
            cursor.take()
            return Unpack(cursor.span(start))
        case _:
            return _change(cursor, start)


def _change(cursor: Cursor, start: int) -> Stage:
    """Parse a stage that changes the line or the labels."""
    match cursor.kind:
        case "line_format":
            cursor.take()
            return LineFormat(cursor.expect("STRING").name, cursor.span(start))
        case "label_format":
            cursor.take()
            assignments = [_assignment(cursor)]
            while cursor.accept(","):
                assignments.append(_assignment(cursor))
            return LabelFormat(tuple(assignments), cursor.span(start))
        case "decolorize":
            cursor.take()
            return Decolorize(cursor.span(start))
        case "drop":
            cursor.take()
            return Drop(_choices(cursor), cursor.span(start))
        case "keep":
            cursor.take()
            return Keep(_choices(cursor), cursor.span(start))
    raise cursor.unexpected()


def _logfmt(cursor: Cursor, start: int) -> Logfmt:
    flags = set()
    while flag := cursor.accept("FUNCTION_FLAG"):
        flags.add(flag.text)
    extractions = _extractions(cursor)
    return Logfmt(extractions, "--strict" in flags, "--keep-empty" in flags, cursor.span(start))


def _extractions(cursor: Cursor) -> tuple[Extraction, ...]:
    if cursor.kind != "IDENTIFIER":
        return ()
    found = [_extraction(cursor)]
    while cursor.accept(","):
        found.append(_extraction(cursor))
    return tuple(found)


def _extraction(cursor: Cursor) -> Extraction:
    label = cursor.expect("IDENTIFIER").text
    return Extraction(label, cursor.expect("STRING").name if cursor.accept("=") else label)


def _assignment(cursor: Cursor) -> Assignment:
    label = cursor.expect("IDENTIFIER").text
    cursor.expect("=")
    if source := cursor.accept("IDENTIFIER"):
        return Assignment(label, source.text, is_rename=True)
    if cursor.kind != "STRING":
        raise cursor.unexpected("IDENTIFIER", "STRING")
    return Assignment(label, cursor.take().name)


def _choices(cursor: Cursor) -> tuple[LabelChoice, ...]:
    found = [_choice(cursor)]
    while cursor.accept(","):
        found.append(_choice(cursor))
    return tuple(found)


def _choice(cursor: Cursor) -> LabelChoice:
    label = cursor.expect("IDENTIFIER")
    op = matching_operator(cursor)
    return LabelChoice(label.text, matcher_value(cursor, label, op) if op else None)


def _check_captures(cursor: Cursor, pattern: Lexeme) -> None:
    """Refuse a regular expression for `regexp` that is wrong, names no group or one name twice."""
    try:
        if repeated := repeated_group_name(pattern.name):
            raise UserError(f"duplicate extracted label name '{repeated}'")
        if not compile_group_search(pattern.name).names:
            raise UserError("at least one named capture must be supplied")
    except UserError as error:
        raise cursor.mistake(pattern.start, f"invalid regexp parser: {error.message}") from None
