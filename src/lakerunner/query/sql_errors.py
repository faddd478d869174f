"""Errors of DuckDB in the user's terms: at a position in the user's text, without our internal names, with a remedy.

Input: DuckDB's message about the SQL that ran, which is not the text that the user wrote, and a position in that SQL.
Output: the same error at the place in the user's text that has the same word. A position is given only if a single
place can be meant; names of scan relations and of their extra columns are never shown. Known mistakes get a remedy at
the end of the message.
"""

from __future__ import annotations

import re
from collections.abc import Collection

from sqlglot.errors import SqlglotError
from sqlglot.tokenizer_core import Token, TokenType

from lakerunner.lakeql.dialect import DIALECT
from lakerunner.lakeql.source import QueryText
from lakerunner.lakeql.tables import KINDS, STATUS_CODES
from lakerunner.model.errors import Position, UserError
from lakerunner.query.contract.failures import EngineError

_NEAR = 8  # tokens after the position that are tried: CAST("message" AS ... may stand for message::...
_SIGNS = frozenset("(),.*")  # in every query, so they identify no place
_ATTRIBUTE = re.compile(r'"?scan_\d+\.(attributes|resource_attributes|scope_attributes)\[((?:[^\]\\"]|\\.)*)\]"?')
_ID = re.compile(r'"?scan_\d+\.(\w+)\.bytes"?')
_OTHER = re.compile(r'"?scan_\d+(?:\.\w+)?"?')
_COLUMNS = {"resource_attributes": "resource_attrs", "scope_attributes": "scope_attrs"}
_GROUPED = re.compile(r"column (.+?) must appear in the GROUP BY clause or (?:be used|must be part).*", re.S)
_NO_FUNCTION = re.compile(r"No function matches the given name and argument types '(.+?)\((.*?)\)'\..*", re.S)
_NO_CHOICE = re.compile(r'Could not choose a best candidate function for the function call "(.+?)\((.*?)\)".*', re.S)
_COMPARED = re.compile(
    r"Cannot (?:compare|mix) values of type (.+?) and (?:type )?(.+?)(?: in .*?)? - an explicit cast is required.*",
    re.S,
)
# DuckDB's advice goes on with SET, which we refuse.
_BY_ZERO = re.compile(r"(Division by zero in expression .+)\. Use TRY", re.S)
_MIXED = "Cannot mix aggregates with non-aggregated columns"
_NOT_A_NUMBER = re.compile(r"Could not convert string '(\w+)' to INT32$")
_TEXT = re.compile("VARCHAR")
_NUMBER = re.compile(r"U?(?:TINY|SMALL|BIG|HUGE)?INT(?:EGER)?|DOUBLE|FLOAT|DECIMAL.*")
_TIME = re.compile(r"TIMESTAMP(?:_NS)?")
_ZONED = re.compile("TIMESTAMP WITH TIME ZONE|TIMESTAMPTZ.*")
_INTERVAL = re.compile("INTERVAL")
# What to write to compare two types, in either order.
_REMEDIES = (
    (_TEXT, _NUMBER, "attributes are text, cast them as in try_cast(attributes['key'] AS DOUBLE)"),
    (_TIME, _NUMBER, "write the number as a time, with to_timestamp(seconds), epoch_ms(ms) or make_timestamp_ns(ns)"),
    (_TIME, _ZONED, "times are UTC without a zone, cast the other one to TIMESTAMP"),
    (_NUMBER, _INTERVAL, "duration is in nanoseconds, a second is 1e9"),
)
# Columns of numbers that other systems show as words.
_WORDS = {"status_code": STATUS_CODES, "kind": KINDS}


def locate_error(error: EngineError, text: str) -> UserError:
    """Return the error as the user is shown it."""
    called = _NO_FUNCTION.search(error.message) or _NO_CHOICE.search(error.message)
    position = _find_position(error, text, called[1] if called else "")
    if called:
        types = _in_user_terms(called[2]) or "no arguments"
        return UserError(f"{called[1]} does not take {types}: cast its arguments", position)
    grouped = _GROUPED.match(error.message)
    if not grouped:
        return UserError(
            with_remedy(_in_user_terms(error.message), {token.text.lower() for token in _tokens(text)}), position
        )
    name = _in_user_terms(grouped[1]).strip('"')
    message = f"{name} must be in GROUP BY or in an aggregate, such as any_value({name})"
    attribute = _ATTRIBUTE.fullmatch(grouped[1])
    if attribute and any(one.token_type == TokenType.VAR and one.text == _key(attribute[2]) for one in _tokens(text)):
        message += f". For the name that AS gives, write {_key(attribute[2])} without quotes"
    return UserError(message, position)


def _in_user_terms(message: str) -> str:
    """Replace our internal names: an attribute by its map and key, an id by its column."""
    message = _ATTRIBUTE.sub(lambda one: f"{_COLUMNS.get(one[1], one[1])}['{_key(one[2])}']", message)
    message = _ID.sub(r"\1", message)
    message = message.replace("INTEGER_LITERAL", "INTEGER").replace("STRING_LITERAL", "VARCHAR")
    return _OTHER.sub("this expression", message)


def _find_position(error: EngineError, text: str, called: str) -> Position | None:
    """Return the position of the word at which the engine stopped, or else that of the function that it named."""
    users = _tokens(text)
    if error.position is None:
        named = [token for token in users if called and token.text.lower() == called]
        return QueryText(text).position(named[0].start) if len(named) == 1 else None
    ran, offset = _tokens(error.sql), error.position.column - 1
    for n in [n for n, token in enumerate(ran) if token.end >= offset][:_NEAR]:
        mine = [token for token in users if _is_written_as(token, ran[n])]
        same = [m for m, token in enumerate(ran) if token.text == ran[n].text]
        if len(mine) == 1:
            return QueryText(text).position(mine[0].start)
        if mine and len(mine) == len(same):
            return QueryText(text).position(mine[same.index(n)].start)
    return None


def _is_written_as(token: Token, ran: Token) -> bool:
    """Return whether the user's token became this token of the SQL: an attribute by its quoted key, an id by its
    column."""
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


def with_remedy(message: str, words: Collection[str]) -> str:
    """Add a remedy to DuckDB's message; return an unknown message unchanged. `words` are those of the user's query."""
    compared = _COMPARED.fullmatch(message)
    if compared:
        one, other = compared.groups()
        return f"{one} and {other} cannot be compared: {_comparison_remedy(one, other)}"
    if by_zero := _BY_ZERO.match(message):
        return f"{by_zero[1]}: divide by nullif(divisor, 0), or write TRY(...) around it, to get NULL"
    if message.startswith(_MIXED) and "all" in words:
        return f"{_MIXED}: write the columns in GROUP BY instead of ALL"
    text = _NOT_A_NUMBER.search(message)
    if text is None:
        return message
    word = re.compile(rf"\b{text[1].lower()}\b")
    meant = (
        f". {column} is {numbers}" for column, numbers in _WORDS.items() if column in words and word.search(numbers)
    )
    return message + next(meant, "")


def _comparison_remedy(one: str, other: str) -> str:
    for left, right, remedy in _REMEDIES:
        if any(left.fullmatch(first) and right.fullmatch(second) for first, second in ((one, other), (other, one))):
            return remedy
    return "cast one of them"
