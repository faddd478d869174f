"""The user's text: read into a tree, and able to say where in it something stands.

Comes in: one statement. Goes out: the tree of exactly one SELECT. Anything else is refused by the word it begins
with, before it is parsed, so that what sqlglot cannot read is still named.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import pairwise

from sqlglot import exp
from sqlglot.errors import ErrorLevel, ParseError, TokenError
from sqlglot.tokenizer_core import Token, TokenType

from lakerunner.lakeql.dialect import DIALECT
from lakerunner.lakeql.suggest import keyword_meant
from lakerunner.model.errors import Position, TooLarge, UserError

MAX_LENGTH = 65_536
_MAX_TOKENS = 20_000
_BEGINS_A_SELECT = {TokenType.SELECT, TokenType.WITH, TokenType.FROM, TokenType.L_PAREN}
_NAMED = {TokenType.VAR, TokenType.IDENTIFIER}
_NO_PARAMETERS = {"@", "#"}  # sqlglot takes them for parameters, DuckDB for operators and positions
# What sqlglot raises instead of a ParseError on some texts that are no SQL.
_STUMBLES = (AttributeError, IndexError, KeyError, TypeError, ValueError)
_WORD = re.compile(r"\w+")
_OPENED_AT = re.compile(r"Missing .+ from \d+:(\d+)$", re.DOTALL)


@dataclass(frozen=True)
class Source:
    """`offset` arguments are characters from 0, as sqlglot's tokens count them."""

    text: str

    def position(self, offset: int) -> Position:
        before = self.text[:offset]
        return Position(before.count("\n") + 1, offset - before.rfind("\n"))

    def where(self, node: exp.Expr) -> Position | None:
        """The first character of what this node was read from."""
        starts = [part.meta["start"] for part in node.walk() if "start" in part.meta]
        if starts:
            return self.position(min(starts))
        return self.where(node.parent) if node.parent else None

    def error(self, message: str, node: exp.Expr) -> UserError:
        return UserError(message, self.where(node))

    def parse(self, max_length: int = MAX_LENGTH) -> exp.Query:
        """The one SELECT in the text."""
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
            said = tree.key.upper() if tree else "nothing"
            raise UserError(f"only SELECT is available, not {said}", self.position(tokens[0].start))
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
        """What sqlglot lets pass and DuckDB does not, or reads otherwise: a,,b and 0x1F (a number there, the
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
            meant = keyword_meant(first.text)
            hint = f": did you mean {meant}?" if meant else ""
            raise UserError(f"only SELECT is available, not {first.text.upper()}{hint}", self.position(first.start))
        rest = [t for t in tokens if t.start > statement[-1].start and t.token_type != TokenType.SEMICOLON]
        if rest:
            raise UserError("only one statement is allowed: a second one starts here", self.position(rest[0].start))
        return statement

    def _syntax_error(self, error: ParseError) -> UserError:
        """sqlglot gives the line and the column where the offending token ends."""
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
            if meant := keyword_meant(word[0]):
                place = Position(position.line, word.start() + 1)
                return UserError(f"the query cannot be read at {word[0]}: did you mean {meant}?", place)
        return None
