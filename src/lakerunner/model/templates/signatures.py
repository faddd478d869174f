"""What a template function is: a Python callable, and the Go types of its parameters.

The evaluator checks arguments against the types before it calls, and reports a mismatch as Go does. A function that
fails raises ValueError with Go's words.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from lakerunner.model.templates.go_time import GoTime
from lakerunner.model.templates.limits import MAX_CHARACTERS, MAX_STEPS, too_long, too_many_steps

ANY = "interface {}"
STRING, INT, FLOAT, TIME = "string", "int", "float64", "time.Time"
PYTHON_TYPES: dict[str, type] = {STRING: str, INT: int, FLOAT: float, TIME: GoTime}


@dataclass(frozen=True, slots=True)
class TemplateFunction:
    """`takes` are the types of the parameters, `rest` that of any number of further ones. `needs_rendering`: the
    callable gets the Rendering first."""

    call: Callable[..., Any]
    takes: tuple[str, ...] = ()
    rest: str | None = None
    needs_rendering: bool = False


Functions = Mapping[str, TemplateFunction]
NO_ELEMENT = object()


class Rendering:
    """One run of a template: its inputs, its variables, the output so far and what is left of its budget. `element` is
    the member of a JSON value that a loop is at: errors name its type as Go's `interface {}`."""

    __slots__ = ("depth", "element", "line", "now_ns", "parts", "size", "slots", "steps", "timestamp_ns")

    def __init__(self, line: str, timestamp_ns: int, now_ns: int, slots: list[Any]) -> None:
        self.line, self.timestamp_ns, self.now_ns = line, timestamp_ns, now_ns
        self.slots = slots
        self.element: Any = NO_ELEMENT
        self.parts: list[str] = []
        self.size = self.depth = 0
        self.steps = MAX_STEPS

    def write(self, text: str) -> None:
        self.size += len(text)
        if self.size > MAX_CHARACTERS:
            raise too_long(self.size)
        self.parts.append(text)

    def charge(self, steps: int) -> None:
        self.steps -= steps
        if self.steps < 0:
            raise too_many_steps()
