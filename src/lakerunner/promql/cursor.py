"""The parser's position in the tokens, and the constructs it is inside: an unexpected token is reported with the
innermost one that states what it expects."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from lakerunner.model.errors import UserError
from lakerunner.model.labels import selector
from lakerunner.model.labels.selector import PROMQL, Grammar
from lakerunner.promql.lexer import Lexer, Token, refusal
from lakerunner.promql.literals import utf8_string

MAX_NESTING = 100


class Cursor:
    """Reads tokens with one token of lookahead, which is lexed only when it is needed."""

    def __init__(self, text: str, grammar: Grammar = PROMQL) -> None:
        self.text = text
        self.last_end = 0  # end of the last token taken
        self._depth = 0
        self._lexer = Lexer(text, grammar)
        self._next: Token | None = None
        self._inside: list[tuple[str, str]] = [("", "")]

    @property
    def kind(self) -> str:
        """Return the kind of the next token."""
        return self.peek().kind

    def peek(self) -> Token:
        if self._next is None:
            self._next = self._lexer.next()
        return self._next

    def take(self) -> Token:
        token = self.peek()
        self._next = None
        self.last_end = token.end
        return token

    def accept(self, kind: str) -> Token | None:
        return self.take() if self.kind == kind else None

    def expect(self, kind: str) -> Token:
        if self.kind != kind:
            raise self.unexpected()
        return self.take()

    def value(self, token: selector.Token) -> str:
        """Return the content of a string, which must be UTF-8."""
        return utf8_string(self.text, token)

    def fail(self, at: int, message: str) -> UserError:
        return refusal(self.text, at, message)

    def unexpected(self, context: str | None = None, expected: str = "") -> UserError:
        """Return the error for the next token. Without a context that of the innermost construct applies."""
        if context is None:
            context, expected = self._inside[-1]
        message = f"unexpected {self.peek().description()}"
        message += f" in {context}" if context else ""
        message += f", expected {expected}" if expected else ""
        return self.fail(self.peek().start, message)

    @contextmanager
    def inside(self, context: str, expected: str = "") -> Iterator[None]:
        self._inside.append((context, expected))
        yield
        self._inside.pop()

    def enter(self) -> None:
        """Go one level deeper. The parser recurses for each, so that depth is refused before the stack runs out."""
        self._depth += 1
        if self._depth > MAX_NESTING:
            raise self.fail(self.peek().start, f"more than {MAX_NESTING} expressions inside each other")

    def leave(self) -> None:
        self._depth -= 1
