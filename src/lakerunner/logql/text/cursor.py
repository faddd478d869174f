"""Read lexemes: the parser's position in them, what it expects there, and the mistakes that are reported at the end.

Two kinds of mistakes: a lexeme that is out of place ends parsing at once. What the text means wrongly (an aggregation
that needs unwrap, a parameter too many) is a fault; it is reported only if the whole text can be read, the outermost
and leftmost first, as in Loki, which keeps it in the tree.
"""

from __future__ import annotations

from lakerunner.logql.text.lexer import Lexeme, Lexer, position, refusal
from lakerunner.model.errors import UserError
from lakerunner.series.expression import Span

# Parentheses and functions inside each other: the parser recurses for each, at most three frames deep. No tree that it
# accepts (parse.py, MAX_DEPTH) is printed with more.
MAX_NESTING = 200
_MAX_EXPECTED = 4  # Loki names no more, and nothing where there are more
_LACKING = {"count_values": "count_values", "variants": "variants", "@": "@ modifier"}


class Cursor:
    """Reads lexemes with one of lookahead, which is split off only when it is needed."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.last_end = 0  # end of the last lexeme taken
        self._depth = 0
        self._lexer = Lexer(text)
        self._next: Lexeme | None = None
        self._faults: list[tuple[int, int, UserError]] = []

    @property
    def kind(self) -> str:
        """Return the kind of the next lexeme."""
        return self.peek().kind

    def peek(self) -> Lexeme:
        if self._next is None:
            self._next = self._lexer.next()
        return self._next

    def take(self) -> Lexeme:
        lexeme = self.peek()
        self._next = None
        self.last_end = lexeme.end
        return lexeme

    def accept(self, kind: str) -> Lexeme | None:
        return self.take() if self.kind == kind else None

    def expect(self, kind: str, *others: str) -> Lexeme:
        """Take a lexeme of this kind; the message for another one names also the others that could stand here."""
        if self.kind != kind:
            raise self.unexpected(kind, *others)
        return self.take()

    def unexpected(self, *expected: str) -> UserError:
        """Return the error for the next lexeme. `expected` is in the order in which Loki declares its tokens; it is
        empty where more than four kinds could stand."""
        lexeme = self.peek()
        message = f"syntax error: unexpected {lexeme.kind}"
        if expected and len(expected) <= _MAX_EXPECTED:
            message += f", expecting {' or '.join(expected)}"
        if lexeme.kind == "IDENTIFIER" and (lacking := _LACKING.get(lexeme.text.lower())):
            message += f": LogQL has no {lacking}"
        return refusal(self.text, lexeme.start, message, composed=lexeme.composed)

    def span(self, start: int) -> Span:
        """Return the place from `start` to the last lexeme taken."""
        return Span(start, self.last_end)

    def enter(self) -> None:
        """Go one level deeper. Depth is refused before the stack runs out."""
        self._depth += 1
        if self._depth > MAX_NESTING:
            raise refusal(self.text, self.peek().start, f"more than {MAX_NESTING} expressions inside each other")

    def leave(self) -> None:
        self._depth -= 1

    def mistake(self, start: int, message: str) -> UserError:
        """Return the error for a part that means nothing valid. Loki's message has no place."""
        return UserError(f"parse error : {message}", position(self.text, start))

    def fault(self, start: int, message: str) -> None:
        """Note a mistake of the part that begins at `start`."""
        # A part that surrounds others begins no later than they and is complete after them.
        self._faults.append((start, -len(self._faults), self.mistake(start, message)))

    def raise_fault(self) -> None:
        """Raise the first fault, if there is one."""
        if self._faults:
            raise min(self._faults, key=lambda fault: fault[:2])[2]
