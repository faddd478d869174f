"""The text of a query: parse it, say where in it something stands, and fill in its parameters ($1, $name, ?).

Comes in: one statement, and values by name; `?` are named 1, 2, ... in the order of the text. Goes out: the tree of
exactly one SELECT, with literals in the place of parameters. Any other statement is refused by its first word before it
is parsed, so that what sqlglot cannot read is still named. What always holds: a value never becomes anything but a
literal, whatever it holds, and means what that literal would mean in its place; each value is used, and each parameter
has one.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from sqlglot import exp
from sqlglot.errors import ErrorLevel, ParseError, TokenError
from sqlglot.tokenizer_core import Token, TokenType

from lakerunner.lakeql.dialect import DIALECT
from lakerunner.lakeql.suggest import suggest_keyword
from lakerunner.model.errors import Position, TooLarge, UserError

MAX_LENGTH = 65_536
_MAX_TOKENS = 20_000
_BEGINS_A_SELECT = {TokenType.SELECT, TokenType.WITH, TokenType.FROM, TokenType.L_PAREN}
_NAMED = {TokenType.VAR, TokenType.IDENTIFIER}
_NO_PARAMETERS = {"@", "#"}  # sqlglot takes them for parameters, DuckDB for operators and positions
# What sqlglot raises instead of a ParseError on some texts that are not SQL.
_STUMBLES = (AttributeError, IndexError, KeyError, TypeError, ValueError)
_WORD = re.compile(r"\w+")
_OPENED_AT = re.compile(r"Missing .+ from \d+:(\d+)$", re.DOTALL)


@dataclass(frozen=True)
class QueryText:
    """The text of a query. `offset` arguments are characters from 0, as sqlglot's tokens count them."""

    text: str

    def position(self, offset: int) -> Position:
        before = self.text[:offset]
        return Position(before.count("\n") + 1, offset - before.rfind("\n"))

    def where(self, node: exp.Expr) -> Position | None:
        """Return the position of the first character that this node was parsed from."""
        starts = [part.meta["start"] for part in node.walk() if "start" in part.meta]
        if starts:
            return self.position(min(starts))
        return self.where(node.parent) if node.parent else None

    def error(self, message: str, node: exp.Expr) -> UserError:
        return UserError(message, self.where(node))

    def parse(self, max_length: int = MAX_LENGTH) -> exp.Query:
        """Parse the one SELECT in the text."""
        if len(self.text) > max_length:
            raise TooLarge(f"the query has {len(self.text)} characters, more than the {max_length} allowed")
        tokens = self._one_statement(self._tokens())
        parser = DIALECT.parser(error_level=ErrorLevel.IMMEDIATE)
        try:
            (tree,) = parser.parse(tokens, self.text)
        except ParseError as error:
            raise self._syntax_error(error) from None
        except _STUMBLES:
            raise UserError("the query cannot be read") from None
        if tree is None or not isinstance(tree, exp.Query):
            statement = tree.key.upper() if tree else "nothing"
            raise UserError(f"only SELECT is available, not {statement}", self.position(tokens[0].start))
        return tree

    def _tokens(self) -> list[Token]:
        nul = self.text.find("\0")
        if nul >= 0:
            raise UserError("the query contains a NUL character", self.position(nul))
        try:
            tokens: list[Token] = DIALECT.tokenize(self.text)
        except TokenError as error:
            raise self._open_end(error) from None
        if len(tokens) > _MAX_TOKENS:
            raise TooLarge(f"the query has {len(tokens)} words and signs, more than the {_MAX_TOKENS} allowed")
        for token in tokens:
            if token.token_type in (TokenType.PARAMETER, TokenType.HASH) and token.text in _NO_PARAMETERS:
                raise UserError(
                    f"{token.text} is not available: parameters are $1, $name or ?", self.position(token.start)
                )
        for token, after in pairwise(tokens):
            self._refuse_misread(token, after)
        return tokens

    def _refuse_misread(self, token: Token, after: Token) -> None:
        """Refuse what sqlglot accepts and DuckDB does not, or reads otherwise: a,,b and 0x1F (a number there, the
        number 0 named x1F here)."""
        glued = after.start == token.end + 1 and token.token_type == TokenType.NUMBER
        if glued and after.token_type in _NAMED:
            number = self.text[token.start : after.end + 1]
            raise UserError(f"{number} is not a number here", self.position(token.start))
        if token.token_type == after.token_type == TokenType.COMMA:
            raise UserError("the query cannot be read at ,", self.position(after.start))

    def _open_end(self, error: TokenError) -> UserError:
        found = _OPENED_AT.search(str(error.__cause__))
        opened = int(found[1]) if found else self.text.rfind("/*")
        return UserError("this string, quoted name or comment is not closed", self.position(max(opened, 0)))

    def _one_statement(self, tokens: list[Token]) -> list[Token]:
        statement: list[Token] = []
        for token in tokens:
            if token.token_type != TokenType.SEMICOLON:
                statement.append(token)
            elif statement:
                break
        if not statement:
            raise UserError("the query is empty")
        first = statement[0]
        if first.token_type not in _BEGINS_A_SELECT:
            meant = suggest_keyword(first.text)
            hint = f": did you mean {meant}?" if meant else ""
            raise UserError(f"only SELECT is available, not {first.text.upper()}{hint}", self.position(first.start))
        rest = [t for t in tokens if t.start > statement[-1].start and t.token_type != TokenType.SEMICOLON]
        if rest:
            raise UserError("only one statement is allowed: a second one starts here", self.position(rest[0].start))
        return statement

    def _syntax_error(self, error: ParseError) -> UserError:
        """Return the error of the parser at its place: sqlglot reports the line and the column where the offending
        token ends."""
        if not error.errors:
            return UserError("the query cannot be read")
        first = error.errors[0]
        described, token = str(first["description"]), str(first["highlight"])
        message = f"the query cannot be read at {token}"
        if described.startswith("Expecting"):
            message += f": expected {described.removeprefix('Expecting').strip()}"
        elif described.startswith(("Required", "Expected")):
            message = f"the query cannot be read: something is missing at {token}"
        line, column = first["line"], first["col"]
        if line is None or column is None:
            return UserError(message)
        position = Position(line, max(1, column - len(token) + 1))
        return self._misspelt(position) or UserError(message, position)

    def _misspelt(self, position: Position) -> UserError | None:
        """Find a misspelt keyword: the word there, or the one before it, which was taken for the name of a table."""
        line = self.text.split("\n")[position.line - 1]
        words = [word for word in _WORD.finditer(line) if word.start() < position.column]
        for word in reversed(words[-2:]):
            if meant := suggest_keyword(word[0]):
                place = Position(position.line, word.start() + 1)
                return UserError(f"the query cannot be read at {word[0]}: did you mean {meant}?", place)
        return None


# ---- parameters

MAX_VALUES = 10_000
MAX_CHARACTERS = 65_536
_NAMES = ("alias", "table", "db", "catalog")


def fill_parameters(tree: exp.Query, parameters: Mapping[str, Any], source: QueryText) -> None:
    """Put the values in the place of parameters. Raise UserError, with the position, if a parameter has no value, or
    one that cannot stand there."""
    check_size(parameters)
    placeholders = sorted(tree.find_all(exp.Placeholder), key=lambda node: int(node.meta.get("start", 0)))
    names = [str(node.args.get("this") or "") for node in placeholders]
    if "" in names and any(names):
        raise source.error("write all parameters as ?, or all as $1 or $name", placeholders[0])
    named = [(name or str(n), node) for n, (name, node) in enumerate(zip(names, placeholders, strict=True), 1)]
    for name, node in named:
        if name not in parameters:
            raise source.error(f"parameter {_parameter_name(name)} has no value", node)
        _replace(node, name, parameters[name], source)
    unused = sorted(set(parameters) - {name for name, _ in named})
    if unused:
        raise UserError(f"parameter {_parameter_name(unused[0])} is not in the query")


def check_size(parameters: Mapping[str, Any]) -> None:
    """Raise TooLarge beyond what a query's own text could hold."""
    values = [item for value in parameters.values() for item in (value if isinstance(value, list) else [value])]
    if len(values) > MAX_VALUES:
        raise TooLarge(f"the parameters have {len(values)} values, more than the {MAX_VALUES} allowed")
    size = sum(len(value) for value in values if isinstance(value, str))
    if size > MAX_CHARACTERS:
        raise TooLarge(f"the parameters have {size} characters, more than the {MAX_CHARACTERS} allowed")


def _replace(node: exp.Placeholder, name: str, value: Any, source: QueryText) -> None:
    if node.arg_key in _NAMES:
        raise source.error(f"parameter {_parameter_name(name)} stands for a value, not for a name", node)
    in_list = isinstance(node.parent, exp.In) and node.arg_key in ("field", "expressions")
    if isinstance(value, list | tuple):
        if not in_list:
            raise source.error(f"the list of parameter {_parameter_name(name)} can only be used with IN", node)
        _put_list(node, [_parameter_literal(item, name, node, source) for item in value])
    elif node.arg_key == "field":
        raise source.error(f"IN {_parameter_name(name)} needs a list", node)
    else:
        node.replace(_parameter_literal(value, name, node, source))


def _put_list(node: exp.Placeholder, literals: list[exp.Expr]) -> None:
    """Put a list into `x IN $1` or `x IN ($1)`. An empty list contains nothing."""
    membership: Any = node.parent
    others = [other for other in membership.expressions if other is not node]
    at = membership.expressions.index(node) if node.arg_key == "expressions" else 0
    membership.set("field", None)
    listed = [*others[:at], *literals, *others[at:]]
    membership.set("expressions", listed)
    if not listed:
        membership.replace(exp.Anonymous(this="list_contains", expressions=[exp.Array(), membership.this]))


def _parameter_literal(value: Any, name: str, node: exp.Placeholder, source: QueryText) -> exp.Expr:
    match value:
        case None:
            made: exp.Expr = exp.Null()
        case bool():
            made = exp.Boolean(this=value)
        case str() if "\0" not in value and _is_text(value):
            made = exp.Literal.string(value)
        case int() | float() if math.isfinite(value):
            made = exp.Literal.number(value)
        case _:
            kinds = "a text without NUL, a number, true, false, null, or a list of them"
            raise source.error(f"parameter {_parameter_name(name)} has an unsupported value: use {kinds}", node)
    made.meta.update(node.meta)
    return exp.Paren(this=made) if isinstance(made, exp.Neg) else made


def _is_text(value: str) -> bool:
    """Whether it has a UTF-8 form."""
    return not any("\ud800" <= sign <= "\udfff" for sign in value)


def _parameter_name(name: str) -> str:
    return f"${name[:64]}"
