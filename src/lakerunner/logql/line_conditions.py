"""What DuckDB tests of a pipeline before a row reaches us: the line filters on the line as it was stored.

Comes in: the stages of a pipeline. Goes out: SQL that is true for every row whose line passes them. What always holds:
a row whose body is not a string passes, because its line is written from the body (model/streams/log_record.py).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from lakerunner.logql.text.syntax import Decolorize, LineFilter, LineFormat, Stage, Unpack

_CHANGE_LINES = (LineFormat, Unpack, Decolorize)
_MOST = 100  # alternatives of one filter; more cost DuckDB more than they save


def line_conditions(stages: Iterable[Stage]) -> tuple[str, ...]:
    return tuple(f"(body IS NOT NULL OR {sql})" for sql in map(_sql, _filters(stages)) if sql)


def _filters(stages: Iterable[Stage]) -> Iterator[LineFilter]:
    """Yield the filters that see the line as it was stored. Other stages between them change no line."""
    for stage in stages:
        if isinstance(stage, _CHANGE_LINES):
            return
        if isinstance(stage, LineFilter):
            yield stage


def _sql(one: LineFilter) -> str:
    """Return the condition of a filter, "" for one that DuckDB does not test."""
    texts = [alternative.text for alternative in one.alternatives]
    plain = one.op in ("|=", "!=") and not any(alternative.is_ip for alternative in one.alternatives)
    if not plain or len(texts) > _MOST or not all(map(_is_text, texts)):
        return ""
    found = " OR ".join(f"contains(message, {_quoted(text)})" for text in texts)
    return f"NOT ({found})" if one.is_negated else f"({found})"


def _is_text(text: str) -> bool:
    return text != "" and not any(sign == "\0" or "\ud800" <= sign <= "\udfff" for sign in text)


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"
