"""What is known of the rows whose lines pass the line filters of a pipeline: conditions that prune, and SQL.

Comes in: the selector and the stages of a pipeline. Goes out: the conditions of its scan (model/condition.py), and SQL
that DuckDB tests before a row reaches us. What always holds: a row that passes meets all of them. Only filters on the
line as it was stored count, in the order in which stages run.

The line is the column `message`, except where `body` is not null: there it is written from the body
(model/streams/log_record.py), and `message` is another text of it. Both are JSON with the same strings in it, so parts
of a literal that can only stand inside a string are in both; not so in a Loki stream, whose bodies are lines that are
not UTF-8.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from lakerunner.logql.label_conditions import label_filter_conditions, stream_conditions
from lakerunner.logql.stages.pattern import filter_pattern
from lakerunner.logql.stages.pipeline import in_running_order
from lakerunner.logql.text.syntax import Decolorize, LineFilter, LineFormat, LinePattern, Stage, Unpack
from lakerunner.model.condition import (
    LEAST_BYTES,
    AllOf,
    AnyOf,
    Condition,
    Contains,
    Equals,
    Literals,
    NotNull,
    any_of,
    regex_literals,
)
from lakerunner.model.labels.matcher import Matchers
from lakerunner.model.streams.log_record import LOKI_STREAM, LOKI_STREAM_SERVICE
from lakerunner.model.streams.stream_rules import StreamRules

_CHANGE_LINES = (LineFormat, Unpack, Decolorize)
_MOST = 100  # alternatives of one filter; more cost DuckDB more than they save
_MOST_CHARACTERS = 1000  # of a pattern that DuckDB tests
_ALWAYS = ("", ".*", ".+")  # patterns that Loki does not read as such (stages/line_filter.py)
# Inside a JSON string, where no character is written as an escape. Numbers are written differently in both texts.
_IN_STRING = re.compile('[^{}\\[\\],:"\\\\<>&\u2028\u2029\\x00-\\x1f]+')
_OF_NUMBER = re.compile(r"[-+.0-9eE]*")
# Go writes some characters as escapes that `message` does not: a literal may begin within one of them.
_ESCAPES = ("u003c", "u003e", "u0026", "u2028", "u2029")
_ESCAPE_ENDS = frozenset(escape[at:] for escape in _ESCAPES for at in range(len(escape)))
_INFINITE = ("json: unsupported value: nan", "json: unsupported value: +inf", "json: unsupported value: -inf")


def scan_conditions(matchers: Matchers, stages: Iterable[Stage], rules: StreamRules) -> tuple[Condition, ...]:
    """Return what every row meets whose stream meets the matchers and whose line passes the stages."""
    ordered = in_running_order(stages)
    of_lines = (condition for one in _filters(ordered) for condition in _of_filter(one))
    found = (*stream_conditions(matchers, rules), *label_filter_conditions(ordered, rules), *of_lines)
    return tuple(dict.fromkeys(found))


def line_conditions(stages: Iterable[Stage]) -> tuple[str, ...]:
    """Return SQL that is true for every row whose line passes the filters."""
    return tuple(f"(body IS NOT NULL OR {sql})" for sql in map(_sql, _filters(in_running_order(stages))) if sql)


def tests_all_lines(stages: Iterable[Stage]) -> bool:
    """Return whether `line_conditions` test every line filter: a row without a body that meets them passes all."""
    found = [stage for stage in stages if isinstance(stage, LineFilter)]
    tested = list(_filters(in_running_order(stages)))
    return len(found) == len(tested) and all(map(_sql, tested))


def _filters(ordered: Iterable[Stage]) -> Iterator[LineFilter]:
    """Yield the filters that see the line as it was stored. Other stages between them change no line."""
    for stage in ordered:
        if isinstance(stage, _CHANGE_LINES):
            return
        if isinstance(stage, LineFilter):
            yield stage


# ---- conditions


def _of_filter(one: LineFilter) -> tuple[Condition, ...]:
    if one.is_negated:
        return ()
    literals = [_literals(one.op, alternative) for alternative in one.alternatives]
    of_message = any_of(condition for some in literals for condition in _branches(some, within_body=False))
    if not of_message:
        return ()
    of_body = any_of(condition for some in literals for condition in _branches(some, within_body=True))
    is_body: tuple[Condition, ...] = (NotNull("body"),)
    if of_body:
        is_body += (AnyOf((Equals("resource_schema_url", (LOKI_STREAM, LOKI_STREAM_SERVICE)), AllOf(of_body))),)
    return (AnyOf((AllOf(of_message), AllOf(is_body))),)


def _branches(literals: Literals, *, within_body: bool) -> Iterator[list[Condition]]:
    """Yield what `message` contains for each choice of literals; of a row with a body, if `within_body`."""
    for texts in literals.choices:
        parts = [part for text in texts for part in (_parts_in_strings(text) if within_body else (text,))]
        yield [Contains("message", part, literals.ignore_case) for part in parts if len(part.encode()) >= LEAST_BYTES]


def _literals(op: str, pattern: LinePattern) -> Literals:
    if pattern.is_ip:
        return Literals()
    if op == "|~":
        found = regex_literals(pattern.text)
    elif op == "|>":
        parts = filter_pattern(pattern.text)
        found = Literals((tuple(part for n, part in enumerate(parts.parts) if n not in parts.captures),))
    else:
        found = Literals(((pattern.text,),))
    return found if all(_is_text(text) for texts in found.choices for text in texts) else Literals()


def _parts_in_strings(text: str) -> Iterator[str]:
    """Yield the parts of a literal that, where the line is JSON, stand inside a string and are written as they are."""
    if any(text.lower() in infinite for infinite in _INFINITE):
        return
    for match in _IN_STRING.finditer(text):
        part = match[0]
        if not text.endswith("\\", 0, match.start()):
            begun = (size for size in range(5, 0, -1) if part[:size].lower() in _ESCAPE_ENDS)
            part = part[next(begun, 0) :]
            if not _OF_NUMBER.fullmatch(part):
                yield part


# ---- SQL


def _sql(one: LineFilter) -> str:
    """Return the condition of a filter, "" for one that DuckDB does not test."""
    texts = [alternative.text for alternative in one.alternatives]
    if len(texts) > _MOST or not all(map(_is_text, texts)) or any(of.is_ip for of in one.alternatives):
        return ""
    if one.op in ("|=", "!="):
        tests = [f"contains(message, {_quoted(text)})" for text in texts]
    elif one.op in ("|~", "!~"):
        if any(text in _ALWAYS or len(text) > _MOST_CHARACTERS for text in texts):
            return ""
        tests = [f"regexp_matches(message, {_quoted(text)})" for text in texts]
    else:
        return ""
    found = " OR ".join(tests)
    return f"NOT ({found})" if one.is_negated else f"({found})"


def _is_text(text: str) -> bool:
    return text != "" and not any(sign == "\0" or "\ud800" <= sign <= "\udfff" for sign in text)


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"
