"""Parse a template into its tree, with Go's rules and Go's words for what is wrong.

Comes in: the text, the name of the template in errors, and the functions that it may call. Goes out: a tree;
TemplateError for a text that is wrong.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import NoReturn

from lakerunner.model.display import go_quote
from lakerunner.model.templates.go_values import TemplateError
from lakerunner.model.templates.lexing import TemplateToken, read_tokens
from lakerunner.model.templates.limits import MAX_DEPTH
from lakerunner.model.templates.literals import parse_double, parse_integer, unescape, unquote
from lakerunner.model.templates.nodes import (
    Action,
    Body,
    BoolLiteral,
    Branch,
    Chain,
    Command,
    Dot,
    FieldPath,
    LoopJump,
    Name,
    Nil,
    NumberLiteral,
    Operand,
    Pipeline,
    Statement,
    StringLiteral,
    TemplateCall,
    Text,
    Tree,
    VariablePath,
)

_OPERANDS = frozenset(
    {"bool", "character", "complex", "dot", "field", "name", "number", "nil", "raw", "string", "variable", "("}
)
_VALUES = (BoolLiteral, Dot, Nil, NumberLiteral, StringLiteral)  # what only the first command of a pipeline may be
_INT_LIMIT, _UINT_LIMIT = 1 << 63, 1 << 64


class _Parser:
    def __init__(self, name: str, text: str, functions: Collection[str]) -> None:
        self.name, self.functions = name, functions
        self.tokens = read_tokens(text)
        self.place = self.furthest = 0
        self.variables = ["$"]
        self.action_line = self.range_depth = self.depth = 0
        self.bodies: dict[str, Body] = {}

    # ---- tokens

    def peek(self) -> TemplateToken:
        place = min(self.place, len(self.tokens) - 1)
        self.furthest = max(self.furthest, place)
        return self.tokens[place]

    def next(self) -> TemplateToken:
        token = self.peek()
        self.place += 1
        return token

    def peek_word(self) -> TemplateToken:
        while self.peek().kind == "blank":
            self.place += 1
        return self.peek()

    def next_word(self) -> TemplateToken:
        self.peek_word()
        return self.next()

    def fail(self, message: str) -> NoReturn:
        raise TemplateError(f"template: {self.name}:{self.tokens[self.furthest].line}: {message}")

    def unexpected(self, token: TemplateToken, context: str) -> NoReturn:
        if token.kind != "error":
            self.fail(f"unexpected {token} in {context}")
        extra = ""
        if self.action_line not in (0, token.line):
            word = " started" if token.text.endswith(" action") else " in action started"
            extra = f"{word} at {self.name}:{self.action_line}"
        self.fail(f"{token}{extra}")

    def expect(self, kinds: tuple[str, ...], context: str) -> TemplateToken:
        token = self.next_word()
        if token.kind not in kinds:
            self.unexpected(token, context)
        return token

    # ---- statements

    def parse(self) -> None:
        body: list[Statement] = []
        while self.peek().kind != "eof":
            if self._at_define():
                self._define()
                continue
            node = self.statement()
            if isinstance(node, str):
                self.fail(f"unexpected {{{{{node}}}}}")
            body.append(node)
        self.add(self.name, tuple(body))

    def _at_define(self) -> bool:
        if self.peek().kind != "{{":
            return False
        start = self.place
        self.next()
        found = self.next_word().kind == "define"
        if not found:
            self.place = start
        return found

    def _define(self) -> None:
        context = "define clause"
        name = self._unquoted(self.expect(("string", "raw"), context))
        self.expect(("}}",), context)
        body, end = self.nested()
        if end != "end":
            self.fail(f"unexpected {{{{{end}}}}} in {context}")
        self.add(name, body)

    def nested(self) -> tuple[Body, str]:
        """Parse the body of a definition, which has variables of its own."""
        kept = self.variables, self.range_depth
        self.variables, self.range_depth = ["$"], 0
        found = self.body()
        self.variables, self.range_depth = kept
        return found

    def add(self, name: str, body: Body) -> None:
        if name not in self.bodies or _is_empty(self.bodies[name]):
            self.bodies[name] = body
        elif not _is_empty(body):
            self.fail(f"template: multiple definition of template {go_quote(name)}")

    def body(self) -> tuple[Body, str]:
        """Parse up to an `end` or `else`, and return which of them it is."""
        self.depth += 1
        if self.depth > MAX_DEPTH:
            self.fail("max expression depth exceeded")
        body: list[Statement] = []
        while True:
            if self.peek_word().kind == "eof":
                self.fail("unexpected EOF")
            node = self.statement()
            if isinstance(node, str):
                self.depth -= 1
                return tuple(body), node
            body.append(node)

    def statement(self) -> Statement | str:
        """Parse text or an action; return the word for an `end` or `else`."""
        token = self.next_word()
        if token.kind == "text":
            return Text(token.at, token.text)
        if token.kind != "{{":
            self.unexpected(token, "input")
        self.action_line = token.line
        node = self._action()
        self.action_line = 0
        return node

    def _action(self) -> Statement | str:
        token = self.peek_word()
        if token.kind in ("if", "with", "range"):
            self.next()
            return self._branch(token.kind)
        if token.kind in ("break", "continue"):
            self.next()
            return self._jump(token)
        if token.kind == "end":
            self.next()
            self.expect(("}}",), "end")
            return "end"
        if token.kind == "else":
            self.next()
            if self.peek_word().kind not in ("if", "with"):
                self.expect(("}}",), "else")
            return "else"
        if token.kind in ("template", "block"):
            self.next()
            return self._template(token.kind)
        return Action(token.at, self.pipeline("command", "}}"))

    def _jump(self, token: TemplateToken) -> LoopJump:
        end = self.next_word()
        if end.kind != "}}":
            self.unexpected(end, f"{{{{{token.kind}}}}}")
        if not self.range_depth:
            self.fail(f"{{{{{token.kind}}}}} outside {{{{range}}}}")
        return LoopJump(token.at, "break" if token.kind == "break" else "continue")

    def _branch(self, word: str) -> Branch:
        scope = len(self.variables)
        pipeline = self.pipeline(word, "}}")
        self.range_depth += word == "range"
        body, end = self.body()
        self.range_depth -= word == "range"
        otherwise: Body | None = None
        if end == "else":
            if word in ("if", "with") and self.peek().kind == word:
                self.next()
                otherwise = (self._chained(word),)
            else:
                otherwise, end = self.body()
                if end != "end":
                    self.fail(f"expected end; found {{{{{end}}}}}")
        del self.variables[scope:]
        return Branch(pipeline.at, word, pipeline, body, otherwise)  # type: ignore[arg-type]

    def _chained(self, word: str) -> Branch:
        """Parse the `if` of an `else if`."""
        self.depth += 1
        if self.depth > MAX_DEPTH:
            self.fail("max expression depth exceeded")
        branch = self._branch(word)
        self.depth -= 1
        return branch

    def _template(self, word: str) -> TemplateCall:
        context = f"{word} clause"
        token = self.next_word()
        if token.kind not in ("string", "raw"):
            self.unexpected(token, context)
        name = self._unquoted(token)
        if word == "template" and self.peek_word().kind == "}}":
            self.next()
            return TemplateCall(token.at, name, None)
        pipeline = self.pipeline(context, "}}")
        if word == "block":
            body, end = self.nested()
            if end != "end":
                self.fail(f"unexpected {{{{{end}}}}} in {context}")
            self.add(name, body)
        return TemplateCall(token.at, name, pipeline)

    # ---- pipelines

    def pipeline(self, context: str, end: str) -> Pipeline:
        start = self.peek_word().at
        variables, is_assignment = self._declarations(context)
        commands: list[Command] = []
        while (token := self.peek_word()).kind != end:
            if token.kind not in _OPERANDS:
                self.next()
                self.unexpected(token, context)
            commands.append(self._command())
        self.next()
        if not commands:
            self.fail(f"missing value for {context}")
        for stage, command in enumerate(commands[1:], 2):
            if isinstance(command.words[0], _VALUES):
                self.fail(f"non executable command in pipeline stage {stage}")
        return Pipeline(start, tuple(variables), is_assignment, tuple(commands))

    def _declarations(self, context: str) -> tuple[list[str], bool]:
        names: list[str] = []
        while self.peek_word().kind == "variable":
            start = self.place
            name = self.next().text
            follower = self.peek_word()
            if follower.kind not in ("=", ":=") and follower.text != ",":
                self.place = start
                break
            self.next()
            names.append(name)
            self.variables.append(name)
            if follower.kind in ("=", ":="):
                return names, follower.kind == "="
            if context != "range" or len(names) > 1:
                self.fail(f"too many declarations in {context}")
            if self.peek_word().kind not in ("variable", "}}", ")"):
                self.fail("range can only initialize variables")
        return names, False

    def _command(self) -> Command:
        start = self.peek_word().at
        words: list[Operand] = []
        while True:
            self.peek_word()
            operand = self._operand()
            if operand is not None:
                words.append(operand)
            token = self.next()
            if token.kind == "blank":
                continue
            if token.kind in ("}}", ")"):
                self.place -= 1
            elif token.kind != "|":
                self.unexpected(token, "operand")
            break
        if not words:
            self.fail("empty command")
        return Command(start, tuple(words))

    def _operand(self) -> Operand | None:
        term = self._term()
        if term is None or self.peek().kind != "field":
            return term
        at = self.peek().at
        names: list[str] = []
        while self.peek().kind == "field":
            names.append(self.next().text[1:])
        if isinstance(term, FieldPath):
            return FieldPath(at, (*term.names, *names))
        if isinstance(term, VariablePath):
            return VariablePath(at, (*term.names, *names))
        if isinstance(term, _VALUES):
            self.fail(f"unexpected . after term {go_quote(str(term))}")
        return Chain(at, term, tuple(names))

    def _term(self) -> Operand | None:
        token = self.peek_word()
        if token.kind not in _OPERANDS:
            return None
        self.next()
        if token.kind == "(":
            return self._parenthesized()
        if token.kind == "name":
            if token.text not in self.functions:
                self.fail(f"function {go_quote(token.text)} not defined")
            return Name(token.at, token.text)
        if token.kind == "variable":
            if token.text not in self.variables:
                self.fail(f"undefined variable {go_quote(token.text)}")
            return VariablePath(token.at, (token.text,))
        if token.kind == "field":
            return FieldPath(token.at, (token.text[1:],))
        return self._constant(token)

    def _parenthesized(self) -> Pipeline:
        self.depth += 1
        if self.depth > MAX_DEPTH:
            self.fail("max expression depth exceeded")
        pipeline = self.pipeline("parenthesized pipeline", ")")
        self.depth -= 1
        return pipeline

    def _constant(self, token: TemplateToken) -> Operand:
        if token.kind == "dot":
            return Dot(token.at)
        if token.kind == "nil":
            return Nil(token.at)
        if token.kind == "bool":
            return BoolLiteral(token.at, token.text, token.text == "true")
        if token.kind in ("string", "raw"):
            return StringLiteral(token.at, token.text, self._unquoted(token))
        try:
            return _number(token)
        except TemplateError as error:
            self.fail(str(error))

    def _unquoted(self, token: TemplateToken) -> str:
        value = unquote(token.text)
        if value is None:
            self.fail("invalid syntax")
        return value


def _is_empty(body: Body) -> bool:
    return all(isinstance(node, Text) and not node.text.strip() for node in body)


def _number(token: TemplateToken) -> NumberLiteral:
    text = token.text
    if token.kind == "character":
        value = unescape(text[1:-1], "'")
        if value is None:
            raise TemplateError("invalid syntax")
        if len(value) != 1:
            raise TemplateError(f"malformed character constant: {text}" if value else "invalid syntax")
        return NumberLiteral(token.at, text, ord(value), float(ord(value)), ord(value))
    if token.kind == "complex" or (text[-1] == "i" and parse_double(text[:-1]) is not None):
        return _complex(token)
    integer = parse_integer(text)
    if integer is not None and -_INT_LIMIT <= integer < _INT_LIMIT:
        return NumberLiteral(token.at, text, integer, float(integer), _ideal(text, integer, float(integer)))
    if integer is not None and 0 <= integer < _UINT_LIMIT:
        return NumberLiteral(token.at, text, None, float(integer), None)
    double = parse_double(text)
    has_point = any(sign in text for sign in ".eEpP")
    if double is None and not (integer is not None and not has_point):
        raise TemplateError(f"illegal number syntax: {go_quote(text)}")
    if double is None or not has_point:
        raise TemplateError(f"integer overflow: {go_quote(text)}")
    whole = int(double) if double.is_integer() and abs(double) < _INT_LIMIT else None
    return NumberLiteral(token.at, text, whole, double, double)


def _ideal(text: str, integer: int, double: float) -> int | float:
    """Return the value of a number of which the source alone decides the type: 0x1e is an integer."""
    is_hexadecimal = len(text) > 2 and text[:2].lower() == "0x" and not any(sign in text for sign in "pP")
    return double if not is_hexadecimal and any(sign in text for sign in ".eEpP") else integer


def _complex(token: TemplateToken) -> NumberLiteral:
    text = token.text.replace("_", "")
    value = complex(text.replace("i", "j"))
    double = value.real if not value.imag else None
    whole = int(double) if double is not None and double.is_integer() else None
    return NumberLiteral(token.at, token.text, whole, double, value)


def parse_template(name: str, text: str, functions: Collection[str]) -> Tree:
    """Parse a template and what it defines."""
    parser = _Parser(name, text, functions)
    parser.parse()
    return Tree(name, text, parser.bodies)
