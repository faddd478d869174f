"""The tree of a template, as it was written. A node knows its place, and prints as Go prints it in errors."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from lakerunner.model.display import go_quote


@dataclass(frozen=True, slots=True)
class Node:
    """`at` is the place in the text, in characters."""

    at: int


@dataclass(frozen=True, slots=True)
class Text(Node):
    text: str

    def __str__(self) -> str:
        return self.text


@dataclass(frozen=True, slots=True)
class Constant(Node):
    """A string, a boolean or a number. `written` is its source."""

    written: str

    def __str__(self) -> str:
        return self.written


@dataclass(frozen=True, slots=True)
class StringLiteral(Constant):
    value: str


@dataclass(frozen=True, slots=True)
class BoolLiteral(Constant):
    value: bool


@dataclass(frozen=True, slots=True)
class NumberLiteral(Constant):
    """A number in each of the types that can hold it; None for one that cannot. `ideal` is its value where nothing
    demands a type, None if it is too large for that."""

    integer: int | None
    double: float | None
    ideal: int | float | complex | None


@dataclass(frozen=True, slots=True)
class Dot(Node):
    def __str__(self) -> str:
        return "."


@dataclass(frozen=True, slots=True)
class Nil(Node):
    def __str__(self) -> str:
        return "nil"


@dataclass(frozen=True, slots=True)
class Name(Node):
    """The name of a function."""

    name: str

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True, slots=True)
class FieldPath(Node):
    """`.a.b`."""

    names: tuple[str, ...]

    def __str__(self) -> str:
        return "".join(f".{name}" for name in self.names)


@dataclass(frozen=True, slots=True)
class VariablePath(Node):
    """`$x.a`; the first name has its dollar sign."""

    names: tuple[str, ...]

    def __str__(self) -> str:
        return ".".join(self.names)


@dataclass(frozen=True, slots=True)
class Chain(Node):
    """Fields of a function's answer or of a pipeline in parentheses: `(f 1).a.b`."""

    inner: Operand
    names: tuple[str, ...]

    def __str__(self) -> str:
        return _in_parentheses(self.inner) + "".join(f".{name}" for name in self.names)


@dataclass(frozen=True, slots=True)
class Command(Node):
    """A function or a value, and arguments."""

    words: tuple[Operand, ...]

    def __str__(self) -> str:
        return " ".join(map(_in_parentheses, self.words))


@dataclass(frozen=True, slots=True)
class Pipeline(Node):
    """`$a, $b := command | command`; `is_assignment` for `=`."""

    variables: tuple[str, ...]
    is_assignment: bool
    commands: tuple[Command, ...]

    def __str__(self) -> str:
        start = ", ".join(self.variables) + (" = " if self.is_assignment else " := ") if self.variables else ""
        return start + " | ".join(map(str, self.commands))


Operand = StringLiteral | BoolLiteral | NumberLiteral | Dot | Nil | Name | FieldPath | VariablePath | Chain | Pipeline


def _in_parentheses(node: Operand) -> str:
    return f"({node})" if isinstance(node, Pipeline) else str(node)


@dataclass(frozen=True, slots=True)
class Action(Node):
    pipeline: Pipeline

    def __str__(self) -> str:
        return f"{{{{{self.pipeline}}}}}"


@dataclass(frozen=True, slots=True)
class Branch(Node):
    """`otherwise` is None without an `else`."""

    word: Literal["if", "with", "range"]
    pipeline: Pipeline
    body: Body
    otherwise: Body | None

    def __str__(self) -> str:
        other = "" if self.otherwise is None else "{{else}}" + "".join(map(str, self.otherwise))
        return f"{{{{{self.word} {self.pipeline}}}}}{''.join(map(str, self.body))}{other}{{{{end}}}}"


@dataclass(frozen=True, slots=True)
class TemplateCall(Node):
    """`{{template "name" pipeline}}`, and the place of a `block`."""

    name: str
    pipeline: Pipeline | None

    def __str__(self) -> str:
        argument = f" {self.pipeline}" if self.pipeline else ""
        return f"{{{{template {go_quote(self.name)}{argument}}}}}"


@dataclass(frozen=True, slots=True)
class LoopJump(Node):
    word: Literal["break", "continue"]

    def __str__(self) -> str:
        return f"{{{{{self.word}}}}}"


Statement = Text | Action | Branch | TemplateCall | LoopJump
Body = tuple[Statement, ...]


@dataclass(frozen=True, slots=True)
class Tree:
    """A template with the templates that it defines. `name` is that of the whole in errors."""

    name: str
    text: str
    bodies: dict[str, Body]


def field_names(body: Body) -> list[str]:
    """Return the names of fields in pipelines, in the order of the text, each as often as it occurs. Fields of
    variables and of functions' answers are not among them."""
    names: list[str] = []
    for node in body:
        if isinstance(node, Action):
            names += _fields_of(node.pipeline)
        elif isinstance(node, Branch):
            names += _fields_of(node.pipeline) + field_names(node.body) + field_names(node.otherwise or ())
    return names


def _fields_of(pipeline: Pipeline) -> list[str]:
    names: list[str] = []
    for command in pipeline.commands:
        for word in command.words:
            if isinstance(word, FieldPath):
                names += word.names
            elif isinstance(word, Pipeline):
                names += _fields_of(word)
    return names
