"""Errors of the engine in the user's terms: at a position of the user's text, in words that name nothing of ours.

Comes in: what DuckDB said of the SQL that ran, which is not the text that the user wrote, and where in that SQL. Goes
out: the same error at the place of the user's text where the same word stands. What always holds: a position is given
only if there is one place that can be meant; no name of a scan's relation or of its further columns is shown.
"""

from __future__ import annotations

import re

from sqlglot.errors import SqlglotError
from sqlglot.tokenizer_core import Token, TokenType

from lakerunner.lakeql.dialect import DIALECT
from lakerunner.lakeql.source import Source
from lakerunner.model.errors import Position, UserError
from lakerunner.query.failures import EngineError
from lakerunner.query.remedies import with_remedy

_NEAR = 8  # tokens from the place on that may say where it is: CAST("message" AS ... stands for message::...
_SIGNS = frozenset("(),.*")  # which stand in every query
_ATTRIBUTE = re.compile(r'"?scan_\d+\.(attributes|resource_attributes|scope_attributes)\[((?:[^\]\\"]|\\.)*)\]"?')
_ID = re.compile(r'"?scan_\d+\.(\w+)\.bytes"?')
_OTHER = re.compile(r'"?scan_\d+(?:\.\w+)?"?')
_COLUMNS = {"resource_attributes": "resource_attrs", "scope_attributes": "scope_attrs"}
_GROUPED = re.compile(r"column (.+?) must appear in the GROUP BY clause or (?:be used|must be part).*", re.S)
_NO_FUNCTION = re.compile(r"No function matches the given name and argument types '(.+?)\((.*?)\)'\..*", re.S)
_NO_CHOICE = re.compile(r'Could not choose a best candidate function for the function call "(.+?)\((.*?)\)".*', re.S)


def located(error: EngineError, text: str) -> UserError:
    called = _NO_FUNCTION.search(error.message) or _NO_CHOICE.search(error.message)
    position = _place(error, text, called[1] if called else "")
    if called:
        types = _shown(called[2]) or "no arguments"
        return UserError(f"{called[1]} does not take {types}: cast its arguments", position)
    grouped = _GROUPED.match(error.message)
    if not grouped:
        return UserError(with_remedy(_shown(error.message), {token.text.lower() for token in _tokens(text)}), position)
    name = _shown(grouped[1]).strip('"')
    message = f"{name} must be in GROUP BY or in an aggregate, such as any_value({name})"
    attribute = _ATTRIBUTE.fullmatch(grouped[1])
    if attribute and any(one.token_type == TokenType.VAR and one.text == _key(attribute[2]) for one in _tokens(text)):
        message += f". For the name that AS gives, write {_key(attribute[2])} without quotes"
    return UserError(message, position)


def _shown(message: str) -> str:
    """Without names of ours: an attribute by its map, an id by its column."""
    message = _ATTRIBUTE.sub(lambda one: f"{_COLUMNS.get(one[1], one[1])}['{_key(one[2])}']", message)
    message = _ID.sub(r"\1", message)
    message = message.replace("INTEGER_LITERAL", "INTEGER").replace("STRING_LITERAL", "VARCHAR")
    return _OTHER.sub("this expression", message)


def _place(error: EngineError, text: str, called: str) -> Position | None:
    """Where the word stands at which the engine stopped; if it did not say, where the function stands that it named."""
    users = _tokens(text)
    if error.position is None:
        named = [token for token in users if called and token.text.lower() == called]
        return Source(text).position(named[0].start) if len(named) == 1 else None
    ran, offset = _tokens(error.sql), error.position.column - 1
    for n in [n for n, token in enumerate(ran) if token.end >= offset][:_NEAR]:
        mine = [token for token in users if _is_written_as(token, ran[n])]
        same = [m for m, token in enumerate(ran) if token.text == ran[n].text]
        if len(mine) == 1:
            return Source(text).position(mine[0].start)
        if mine and len(mine) == len(same):
            return Source(text).position(mine[same.index(n)].start)
    return None


def _is_written_as(token: Token, ran: Token) -> bool:
    """Whether the user wrote this for what ran: an attribute by its key in quotes, an id by its column."""
    attribute, id_ = _ATTRIBUTE.fullmatch(ran.text), _ID.fullmatch(ran.text)
    if attribute:
        return token.text == _key(attribute[2]) and token.token_type in (TokenType.IDENTIFIER, TokenType.STRING)
    if ran.text in _SIGNS or (token.token_type == TokenType.STRING) != (ran.token_type == TokenType.STRING):
        return False
    return token.text.lower() == (id_[1] if id_ else ran.text).lower()


def _tokens(sql: str) -> list[Token]:
    try:
        return list(DIALECT.tokenize(sql))
    except SqlglotError:
        return []


def _key(escaped: str) -> str:
    return re.sub(r"\\(.)", r"\1", escaped)
