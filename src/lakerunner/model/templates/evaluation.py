"""Compile the statements of a template into Python closures that write its output.

Comes in: a tree. Goes out: a closure that takes the Rendering and the data. What always holds: loops and calls of
templates take steps from the Rendering's budget, so that no template runs for long (limits.py).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from lakerunner.model.display import go_quote
from lakerunner.model.templates.expressions import UNSET, Evaluate, Expressions, last_visited
from lakerunner.model.templates.go_values import (
    INTEGERS,
    MAPS,
    NO_VALUE,
    JsonMap,
    TemplateError,
    is_true,
    sorted_items,
    value_text,
)
from lakerunner.model.templates.limits import MAX_DEPTH, too_deep
from lakerunner.model.templates.nodes import Action, Body, Branch, LoopJump, Statement, TemplateCall, Text, Tree
from lakerunner.model.templates.signatures import NO_ELEMENT, Functions, Rendering

Execute = Callable[[Rendering, Any], str | None]  # "break" or "continue" where the loop around must do so


class Program:
    """The compiled bodies of a template and of those that it defines, by name."""

    def __init__(self, tree: Tree, functions: Functions) -> None:
        self._bodies: dict[str, tuple[Execute, int]] = {}
        for name, body in tree.bodies.items():
            compiler = _Statements(tree, name, functions, self)
            execute = compiler.body(body)
            self._bodies[name] = execute, compiler.expressions.slots

    def run(self, name: str, run: Rendering, dot: Any) -> None:
        """Run a body with variables of its own."""
        execute, slots = self._bodies[name]
        kept = run.slots
        run.slots = [dot, *[UNSET] * (slots - 1)]
        execute(run, dot)
        run.slots = kept

    def has(self, name: str) -> bool:
        return name in self._bodies


class _Statements:
    def __init__(self, tree: Tree, name: str, functions: Functions, program: Program) -> None:
        self.expressions = Expressions(tree, name, functions)
        self.expressions.in_loop = name != tree.name  # what is defined may be called again and again
        self._program = program

    def body(self, body: Body) -> Execute:
        statements = tuple(map(self._statement, body))
        if len(statements) == 1:
            return statements[0]

        def execute(run: Rendering, dot: Any) -> str | None:
            for statement in statements:
                jump = statement(run, dot)
                if jump is not None:
                    return jump
            return None

        return execute

    def _statement(self, node: Statement) -> Execute:
        if isinstance(node, Text):
            text = node.text
            return lambda run, _: run.write(text)
        if isinstance(node, Action):
            return self._action(node)
        if isinstance(node, Branch):
            return self._loop(node) if node.word == "range" else self._condition(node)
        if isinstance(node, LoopJump):
            word = node.word
            return lambda *_: word
        return self._template(node)

    def _action(self, node: Action) -> Execute:
        evaluate = self.expressions.pipeline(node.pipeline)
        if node.pipeline.variables:

            def set_only(run: Rendering, dot: Any) -> None:
                evaluate(run, dot)

            return set_only

        def write(run: Rendering, dot: Any) -> None:
            value = evaluate(run, dot)
            run.write(value if type(value) is str else NO_VALUE if value is None else value_text(value))

        return write

    def _condition(self, node: Branch) -> Execute:
        scope = len(self.expressions.scope)
        evaluate = self.expressions.pipeline(node.pipeline)
        body, otherwise = self.body(node.body), self.body(node.otherwise or ())
        del self.expressions.scope[scope:]
        sets_dot = node.word == "with"

        def condition(run: Rendering, dot: Any) -> str | None:
            value = evaluate(run, dot)
            if not is_true(value):
                return otherwise(run, dot)
            if not sets_dot:
                return body(run, dot)
            kept, run.element = run.element, NO_ELEMENT
            jump = body(run, value)
            run.element = kept
            return jump

        return condition

    def _loop(self, node: Branch) -> Execute:
        expressions = self.expressions
        scope, outside = len(expressions.scope), expressions.in_loop
        evaluate = expressions.pipeline(node.pipeline)
        slots = [expressions.slot_of(name) for name in node.pipeline.variables]
        expressions.in_loop = True
        body, cost = self.body(node.body), _size(node.body)
        expressions.in_loop = outside
        otherwise = self.body(node.otherwise or ())
        del expressions.scope[scope:]
        turns = self._turns(node)
        index_slot, slot = (slots[0], slots[1]) if len(slots) > 1 else (None, slots[0] if slots else None)

        def loop(run: Rendering, dot: Any) -> str | None:
            is_empty, kept, values = True, run.element, evaluate(run, dot)
            is_json = type(values) in (list, JsonMap)
            for index, value in turns(values):
                is_empty = False
                run.charge(cost)
                run.element = value if is_json else NO_ELEMENT
                if slot is not None:
                    run.slots[slot] = value
                if index_slot is not None:
                    run.slots[index_slot] = index
                if body(run, value) == "break":
                    break
            run.element = kept
            return otherwise(run, dot) if is_empty else None

        return loop

    def _turns(self, node: Branch) -> Callable[[Any], Iterator[tuple[Any, Any]]]:
        """Return what gives the index and the value of each turn."""
        last, has_index = last_visited(node.pipeline), len(node.pipeline.variables) > 1

        def turns(value: Any) -> Iterator[tuple[Any, Any]]:
            kind = type(value)
            if kind is list:
                return iter(enumerate(value))
            if kind in MAPS:
                return iter(sorted_items(value))
            if value is None:
                return iter(())
            if kind not in INTEGERS:
                raise self._fault(last, f"range can't iterate over {value_text(value)}")
            if has_index:
                raise self._fault(last, f"can't use {value_text(value)} to iterate over more than one variable")
            return ((None, kind(turn)) for turn in range(value))

        return turns

    def _fault(self, node: Any, message: str) -> TemplateError:
        return self.expressions.fault(node, message)

    def _template(self, node: TemplateCall) -> Execute:
        evaluate: Evaluate = self.expressions.pipeline(node.pipeline) if node.pipeline else lambda *_: None
        program, name = self._program, node.name

        def call(run: Rendering, dot: Any) -> None:
            if not program.has(name):
                raise self._fault(node, f"template {go_quote(name)} not defined")
            if run.depth >= MAX_DEPTH:
                raise too_deep()
            run.charge(1)
            value = evaluate(run, dot)
            run.depth += 1
            program.run(name, run, value)
            run.depth -= 1

        return call


def _size(body: Body) -> int:
    """Count the statements of a body, as the cost of one turn."""
    inner = (_size(node.body) + _size(node.otherwise or ()) for node in body if isinstance(node, Branch))
    return 1 + len(body) + sum(inner)
