"""Cut the text of a template into tokens: text, and what stands between `{{` and `}}`.

Comes in: the text. Goes out: tokens; the last is `eof` or `error`. What always holds: blanks inside actions are
tokens, since they separate arguments; trim markers and comments are gone.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from lakerunner.model.display import go_quote

KEYWORDS = frozenset({"block", "break", "continue", "define", "else", "end", "if", "range", "nil", "template", "with"})
_BLANKS = " \t\r\n"
_LEFT, _RIGHT = "{{", "}}"
_RIGHT_TRIMMED = re.compile(r"[ \t\r\n]-\}\}")
_NUMBER = re.compile(
    r"[+-]?(?:0[xX][0-9a-fA-F_]*(?:\.[0-9a-fA-F_]*)?(?:[pP][+-]?[0-9_]*)?"
    r"|0[oO][0-7_]*(?:\.[0-7_]*)?|0[bB][01_]*(?:\.[01_]*)?"
    r"|[0-9_]*(?:\.[0-9_]*)?(?:[eE][+-]?[0-9_]*)?)i?"
)
_QUOTED = re.compile(r'"(?:\\[^\n]|[^"\\\n])*"')
_CHARACTER = re.compile(r"'(?:\\[^\n]|[^'\\\n])*'")
_SHOWN = 10  # characters of a token in an error


@dataclass(frozen=True, slots=True)
class TemplateToken:
    """A token, its place in characters, and its line, which counts from 1."""

    kind: str
    at: int
    text: str
    line: int

    def __str__(self) -> str:
        if self.kind == "eof":
            return "EOF"
        if self.kind == "error":
            return self.text
        if self.kind in KEYWORDS or self.kind == "dot":
            return f"<{self.text}>"
        return (
            f"{go_quote(self.text[:_SHOWN])}..."
            if len(self.text.encode("utf-8", "replace")) > _SHOWN
            else (go_quote(self.text))
        )


def is_word(sign: str) -> bool:
    """Return whether a character is a letter, a digit or an underscore."""
    return sign == "_" or sign.isalpha() or sign.isdecimal()


class _LexError(Exception):
    pass


class _Lexer:
    def __init__(self, text: str) -> None:
        self.text = text
        self.at = self.start = self.depth = 0
        self.line = 1
        self.tokens: list[TemplateToken] = []

    def emit(self, kind: str, end: int) -> None:
        """Add the text from the start of this token up to `end`."""
        self.tokens.append(TemplateToken(kind, self.start, self.text[self.start : end], self.line))
        self.skip_to(end)

    def skip_to(self, end: int) -> None:
        self.line += self.text.count("\n", self.start, end)
        self.start = self.at = end

    def run(self) -> list[TemplateToken]:
        try:
            while self._take_text():
                self._take_action()
            self.tokens.append(TemplateToken("eof", self.at, "EOF", self.line))
        except _LexError as error:
            self.tokens.append(TemplateToken("error", self.start, str(error), self.line))
        return self.tokens

    def _take_text(self) -> bool:
        """Take the text before the next action. Return whether there is one."""
        left = self.text.find(_LEFT, self.at)
        if left < 0:
            if self.at < len(self.text):
                self.emit("text", len(self.text))
            return False
        inside = left + len(_LEFT)
        is_trimmed = self._has_left_marker(inside)
        end = self.start + len(self.text[self.start : left].rstrip(_BLANKS)) if is_trimmed else left
        if end > self.start:
            self.emit("text", end)
        self.skip_to(left)
        return True

    def _has_left_marker(self, at: int) -> bool:
        return self.text[at : at + 1] == "-" and self.text[at + 1 : at + 2] in tuple(_BLANKS)

    def _take_action(self) -> None:
        inside = self.at + len(_LEFT)
        after = inside + 2 if self._has_left_marker(inside) else inside
        if self.text.startswith("/*", after):
            self.skip_to(after)
            self._take_comment()
            return
        self.emit("{{", inside)
        self.skip_to(after)
        self.depth = 0
        while not self._take_right():
            self._take_token()

    def _right(self, at: int) -> tuple[int, bool]:
        """Return the length of the end of an action that starts here, 0 for none, and whether it trims."""
        if _RIGHT_TRIMMED.match(self.text, at):
            return 2 + len(_RIGHT), True
        return (len(_RIGHT), False) if self.text.startswith(_RIGHT, at) else (0, False)

    def _take_comment(self) -> None:
        end = self.text.find("*/", self.at + 2)
        if end < 0:
            raise _LexError("unclosed comment")
        length, is_trimmed = self._right(end + 2)
        if not length:
            raise _LexError("comment ends before closing delimiter")
        self.skip_to(end + 2 + length)
        self._trim(is_trimmed)

    def _trim(self, is_trimmed: bool) -> None:
        if is_trimmed:
            self.skip_to(len(self.text) - len(self.text[self.at :].lstrip(_BLANKS)))

    def _take_right(self) -> bool:
        length, is_trimmed = self._right(self.at)
        if not length:
            return False
        if self.depth:
            raise _LexError("unclosed left paren")
        if is_trimmed:
            self.skip_to(self.at + 2)
        self.emit("}}", self.at + len(_RIGHT))
        self._trim(is_trimmed)
        return True

    def _take_token(self) -> None:
        sign = self.text[self.at : self.at + 1]
        if not sign:
            raise _LexError("unclosed action")
        if sign in _BLANKS:
            self._take_blanks()
        elif sign in "=|":
            self.emit(sign, self.at + 1)
        elif sign == ":":
            if not self.text.startswith(":=", self.at):
                raise _LexError("expected :=")
            self.emit(":=", self.at + 2)
        elif sign in "\"`'":
            self._take_quoted(sign)
        elif sign == "$" or (sign == "." and not "0" <= self.text[self.at + 1 : self.at + 2] <= "9"):
            self._take_path("variable" if sign == "$" else "field")
        elif sign in ".+-" or "0" <= sign <= "9":
            self._take_number()
        elif is_word(sign):
            self._take_word()
        else:
            self._take_sign(sign)

    def _take_blanks(self) -> None:
        end = self.at
        while end < len(self.text) and self.text[end] in _BLANKS:
            end += 1
        if _RIGHT_TRIMMED.match(self.text, end - 1):  # the last blank belongs to the trim marker
            end -= 1
        if end > self.at:
            self.emit("blank", end)

    def _take_quoted(self, sign: str) -> None:
        if sign == "`":
            end = self.text.find("`", self.at + 1)
            if end < 0:
                raise _LexError("unterminated raw quoted string")
            self.emit("raw", end + 1)
            return
        found = (_QUOTED if sign == '"' else _CHARACTER).match(self.text, self.at)
        if not found:
            raise _LexError("unterminated " + ("quoted string" if sign == '"' else "character constant"))
        self.emit("string" if sign == '"' else "character", found.end())

    def _word_end(self, at: int) -> int:
        """Return the end of letters and digits. Raise unless something that may end them follows."""
        while at < len(self.text) and is_word(self.text[at]):
            at += 1
        if not self._ends_word(at):
            raise _LexError(f"bad character {_named(self.text[at])}")
        return at

    def _ends_word(self, at: int) -> bool:
        return at >= len(self.text) or self.text[at] in " \t\r\n.,|:)(" or self.text.startswith(_RIGHT, at)

    def _take_path(self, kind: str) -> None:
        if self._ends_word(self.at + 1):
            self.emit("variable" if kind == "variable" else "dot", self.at + 1)
        else:
            self.emit(kind, self._word_end(self.at + 1))

    def _take_word(self) -> None:
        end = self._word_end(self.at)
        word = self.text[self.at : end]
        self.emit(word if word in KEYWORDS else "bool" if word in ("true", "false") else "name", end)

    def _take_number(self) -> None:
        end, is_good = self._scan_number(self.at)
        kind = "number"
        if is_good and self.text[end : end + 1] in ("+", "-"):
            kind = "complex"
            end, is_good = self._scan_number(end)
            is_good = is_good and self.text[end - 1] == "i"
        if not is_good:
            raise _LexError(f"bad number syntax: {go_quote(self.text[self.at : end])}")
        self.emit(kind, end)

    def _scan_number(self, at: int) -> tuple[int, bool]:
        found = _NUMBER.match(self.text, at)
        end = found.end() if found else at
        if end < len(self.text) and is_word(self.text[end]):
            return end + 1, False
        return end, True

    def _take_sign(self, sign: str) -> None:
        if sign == "(":
            self.depth += 1
        elif sign == ")":
            self.depth -= 1
            if self.depth < 0:
                raise _LexError("unexpected right paren")
        elif not (sign.isascii() and sign.isprintable()):
            raise _LexError(f"unrecognized character in action: {_named(sign)}")
        self.emit(sign if sign in "()" else "sign", self.at + 1)


def _named(sign: str) -> str:
    code = ord(sign) if not 0xD800 <= ord(sign) < 0xE000 else 0xFFFD
    return f"U+{code:04X}" + (f" '{chr(code)}'" if chr(code).isprintable() else "")


def read_tokens(text: str) -> list[TemplateToken]:
    """Return the tokens of a template."""
    return _Lexer(text).run()
