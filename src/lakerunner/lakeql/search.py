"""`search('connection refused')`: full text over the messages of logs, in SQL that the text index serves.

A text is words, with blanks between them, and "phrases"; a message is found that holds them all, in any order, letters
in either case. Every other sign stands for itself. A word may be part of a longer one.
"""

from __future__ import annotations

import re

from sqlglot import exp

from lakerunner.lakeql.scope import Relation, Scope
from lakerunner.lakeql.source import Source
from lakerunner.lakeql.tables import LOGS_TABLE

SEARCH = "search"
MAX_TERMS = 20
_MESSAGE = LOGS_TABLE.named()["message"]
_TERM = re.compile(r'\s*(?:"([^"]*)"|([^\s"]+))')


def search_condition(call: exp.Anonymous, scope: Scope, source: Source) -> exp.Expr:
    """The condition that the call stands for. Its columns are not resolved yet."""
    *table, text = call.expressions or [None]
    if text is None or len(table) > 1:
        raise source.error("search takes a text, or a table and a text: search('words'), search(l, 'words')", call)
    if not text.is_string:
        raise source.error("search: the words to search for must be a text literal or a parameter", call)
    relation = _searched(call, table[0] if table else None, scope, source)
    conditions = [_holds(relation, term) for term in _terms(text.name, call, source)]
    return exp.paren(exp.and_(*conditions, copy=False), copy=False)


def _searched(call: exp.Anonymous, table: exp.Expr | None, scope: Scope, source: Source) -> Relation:
    if table is not None:
        alias = table.name.lower() if isinstance(table, exp.Column) and not table.table else None
        relation = next((r for r in scope.relations if r.alias == alias), None)
        if relation is None or not _has_messages(relation):
            raise source.error(f"search: {table.sql()} is not a table of logs in this query", call)
        return relation
    searched = [relation for relation in scope.relations if _has_messages(relation)]
    if not searched:
        raise source.error("search needs the table logs in FROM", call)
    if len(searched) > 1:
        named = " and ".join(relation.alias for relation in searched)
        raise source.error(f"search is ambiguous between {named}: write search({searched[0].alias}, '...')", call)
    return searched[0]


def _has_messages(relation: Relation) -> bool:
    found = relation.columns.get("message")
    return found is not None and found.column == _MESSAGE


def _terms(text: str, call: exp.Anonymous, source: Source) -> list[str]:
    terms, at = [], 0
    while found := _TERM.match(text, at):
        terms.append(found[1] if found[1] is not None else found[2])
        at = found.end()
    if text[at:].strip():
        raise source.error("search: a phrase is not closed", call)
    wanted = list(dict.fromkeys(term for term in terms if term))
    if not wanted:
        raise source.error("search: there is nothing to search for", call)
    if len(wanted) > MAX_TERMS:
        raise source.error(f"search: {len(wanted)} words and phrases are more than the {MAX_TERMS} allowed", call)
    return wanted


def _holds(relation: Relation, term: str) -> exp.Expr:
    """Both sides in lower case, as DuckDB makes it, so that they agree on every letter."""
    message = exp.column("message", table=relation.alias or None)
    lower = [exp.Anonymous(this="lower", expressions=[side]) for side in (message, exp.Literal.string(term))]
    return exp.Anonymous(this="contains", expressions=lower)
