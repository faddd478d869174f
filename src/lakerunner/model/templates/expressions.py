"""Compile the pipelines of a template into Python closures.

Comes in: nodes of the tree. Goes out: closures that take the Rendering and the dot and return a value. What always
holds: nothing is looked up by name at run time, and an error names the node that Go names, which is the one that Go
visited last (`last_visited`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from lakerunner.model.display import go_quote
from lakerunner.model.templates.builtin_functions import BUILTINS, METHODS
from lakerunner.model.templates.go_values import JsonMap, TemplateError, is_true, type_name, value_text
from lakerunner.model.templates.limits import BYTES_PER_STEP, MAX_CHARACTERS, too_long
from lakerunner.model.templates.nodes import (
    BoolLiteral,
    Chain,
    Command,
    Dot,
    FieldPath,
    Name,
    Nil,
    Node,
    NumberLiteral,
    Operand,
    Pipeline,
    StringLiteral,
    Tree,
    VariablePath,
)
from lakerunner.model.templates.signatures import (
    ANY,
    FLOAT,
    INT,
    PYTHON_TYPES,
    STRING,
    Functions,
    Rendering,
    TemplateFunction,
)

Evaluate = Callable[[Rendering, Any], Any]
EvaluateCommand = Callable[[Rendering, Any, Any], Any]  # the third is the value of the command before
UNSET = object()  # a variable of a branch that was not taken
_EXPECTED = {STRING: "string", INT: "integer", FLOAT: "float"}


def last_visited(node: Node) -> Node:
    """Return the node that Go's evaluator visited last once it has evaluated this one."""
    if isinstance(node, Pipeline):
        return last_visited(node.commands[-1])
    if isinstance(node, Chain):
        return last_visited(node.inner)
    if isinstance(node, Command):
        return last_visited(node.words[-1] if isinstance(node.words[0], Name) else node.words[0])
    return node


class Expressions:
    """The compiler of one template's pipelines. `scope` has the variables at this place with their slots, the latest
    last; `in_loop` is set where the same pipeline may run again and again."""

    def __init__(self, tree: Tree, name: str, functions: Functions) -> None:
        self._tree, self._name, self._functions = tree, name, functions
        self.scope: list[tuple[str, int]] = [("$", 0)]
        self.slots = 1
        self.in_loop = False

    def fault(self, node: Node, message: str) -> TemplateError:
        before = self._tree.text[: node.at]
        column = len(before[before.rfind("\n") + 1 :].encode("utf-8", "surrogateescape"))
        place = f"{self._tree.name}:{before.count(chr(10)) + 1}:{column}"
        return TemplateError(f"template: {place}: executing {go_quote(self._name)} at <{node}>: {message}")

    def _failing(self, node: Node, message: str) -> Callable[..., Any]:
        """Return a closure that fails: Go finds such errors only where they are executed."""

        def fail(*_: Any) -> Any:
            raise self.fault(node, message)

        return fail

    # ---- pipelines

    def pipeline(self, node: Pipeline) -> Evaluate:
        """Compile a pipeline with the variables that it sets; they stay in scope."""
        evaluate = self._commands(node)
        for name in node.variables:
            evaluate = self._setting(name, evaluate, node)
        return evaluate

    def _commands(self, node: Pipeline) -> Evaluate:
        first = self._first(node.commands[0], node)
        if len(node.commands) == 1:
            return first
        rest = tuple(
            self._command(command, last_visited(before), True)
            for before, command in zip(node.commands, node.commands[1:], strict=False)
        )
        if len(rest) == 1:
            (second,) = rest
            return lambda run, dot: second(run, dot, first(run, dot))

        def evaluate(run: Rendering, dot: Any) -> Any:
            value = first(run, dot)
            for command in rest:
                value = command(run, dot, value)
            return value

        return evaluate

    def _setting(self, name: str, evaluate: Evaluate, node: Pipeline) -> Evaluate:
        slot = self.slot_of(name) if node.is_assignment else self.declare(name)
        if slot is None:
            return self._failing(last_visited(node), f"undefined variable: {name}")

        def set_variable(run: Rendering, dot: Any) -> Any:
            value = run.slots[slot] = evaluate(run, dot)
            return value

        return set_variable

    def declare(self, name: str) -> int:
        self.scope.append((name, self.slots))
        self.slots += 1
        return self.slots - 1

    def slot_of(self, name: str) -> int | None:
        return next((slot for known, slot in reversed(self.scope) if known == name), None)

    def _first(self, command: Command, pipeline: Pipeline) -> Evaluate:
        word = command.words[0]
        if len(command.words) == 1 and isinstance(word, FieldPath) and len(word.names) == 1:
            return self._label(word)
        if len(command.words) == 1 and not isinstance(word, Nil | Name):
            return self.value(word)
        evaluate = self._command(command, pipeline, False)
        return lambda run, dot: evaluate(run, dot, None)

    def _label(self, node: FieldPath) -> Evaluate:
        """Compile `.name`, which is a label nearly always."""
        (name,) = node.names
        follow = self._follow(node.names, node, (), False)

        def label(run: Rendering, dot: Any) -> Any:
            return dot.get(name, "") if type(dot) is dict else follow(run, dot, None, dot)

        return label

    def _command(self, node: Command, before: Node, has_final: bool) -> EvaluateCommand:
        word, arguments = node.words[0], node.words[1:]
        if isinstance(word, Name):
            return self.call(word.name, word, node, arguments, has_final)
        if isinstance(word, FieldPath):
            follow = self._follow(word.names, word, arguments, has_final)
            return lambda run, dot, final: follow(run, dot, final, dot)
        if isinstance(word, Chain):
            inner = self._chain_start(word)
            follow_chain = self._follow(word.names, last_visited(word), arguments, has_final, word)
            return lambda run, dot, final: follow_chain(run, dot, final, inner(run, dot))
        if isinstance(word, VariablePath) and len(word.names) > 1:
            variable = self._variable(word)
            follow_variable = self._follow(word.names[1:], word, arguments, has_final)
            return lambda run, dot, final: follow_variable(run, dot, final, variable(run, dot))
        if arguments or has_final:
            at = before if isinstance(word, Pipeline) else word
            return self._failing(at, f"can't give argument to non-function {node.words[0]}")
        if isinstance(word, Nil):
            return self._failing(word, "nil is not a command")
        value = self.value(word)
        return lambda run, dot, _: value(run, dot)

    # ---- values

    def value(self, node: Operand) -> Evaluate:
        """Compile an operand of any type, without arguments."""
        if isinstance(node, StringLiteral | BoolLiteral | NumberLiteral | Nil):
            return self._literal(node, ANY)
        if isinstance(node, Dot):
            return lambda _, dot: dot
        if isinstance(node, Pipeline):
            return self.pipeline(node)
        if isinstance(node, VariablePath) and len(node.names) == 1:
            return self._variable(node)
        if isinstance(node, Name):
            evaluate = self.call(node.name, node, node, (), False)
        else:
            evaluate = self._command(Command(node.at, (node,)), node, False)
        return lambda run, dot: evaluate(run, dot, None)

    def _variable(self, node: VariablePath) -> Evaluate:
        slot = self.slot_of(node.names[0])
        undefined = f"undefined variable: {node.names[0]}"
        if slot is None:
            return self._failing(node, undefined)

        def variable(run: Rendering, dot: Any) -> Any:  # noqa: ARG001 - the shape of all closures
            value = run.slots[slot]
            if value is UNSET:
                raise self.fault(node, undefined)
            return value

        return variable

    def _chain_start(self, node: Chain) -> Evaluate:
        if isinstance(node.inner, Nil):
            return self._failing(node, f"indirection through explicit nil in {node}")
        return self.value(node.inner)

    def _literal(self, node: StringLiteral | BoolLiteral | NumberLiteral | Nil, wanted: str) -> Evaluate:
        value: Any = None
        if isinstance(node, Nil):
            if wanted != ANY:
                return self._failing(node, f"cannot assign nil to {wanted}")
        elif wanted == ANY:
            value = node.ideal if isinstance(node, NumberLiteral) else node.value
            if value is None:
                return self._failing(node, f"{node} overflows int")
        elif wanted == STRING and isinstance(node, StringLiteral):
            value = node.value
        elif wanted == INT and isinstance(node, NumberLiteral) and node.integer is not None:
            value = node.integer
        elif wanted == FLOAT and isinstance(node, NumberLiteral) and node.double is not None:
            value = node.double
        elif wanted in _EXPECTED:
            return self._failing(node, f"expected {_EXPECTED[wanted]}; found {node}")
        else:
            return self._failing(node, f"can't handle {node} for arg of type {wanted}")
        return lambda *_: value

    # ---- calls

    def call(self, name: str, at: Node, caller: Node, arguments: Sequence[Operand], has_final: bool) -> EvaluateCommand:
        """Compile the call of a function by its name. `caller` is what an error of the function itself names."""
        if name not in self._functions:
            if name in ("and", "or"):
                return self._short_circuit(name == "or", at, arguments, has_final)
            if name == "call":
                return self._call_of_value(at, caller, arguments, has_final)
        function = self._functions.get(name) or BUILTINS[name]
        invoke = self.invocation(function, name, at, caller, (*arguments,), has_final)
        if function.needs_rendering:
            return lambda run, dot, final: invoke(run, dot, final, run)
        return lambda run, dot, final: invoke(run, dot, final)

    def invocation(
        self,
        function: TemplateFunction,
        name: str,
        at: Node,
        caller: Node,
        arguments: tuple[Operand, ...],
        has_final: bool,
    ) -> Callable[..., Any]:
        """Compile a call. The closure takes the Rendering, the dot, the final value and what is bound before them."""
        wanted, count = len(function.takes), len(arguments) + has_final
        if function.rest is None and count != wanted:
            return self._failing(at, f"wrong number of args for {name}: want {wanted} got {count}")
        if count < wanted:
            return self._failing(at, f"wrong number of args for {name}: want at least {wanted} got {len(arguments)}")
        types = (*function.takes, *[function.rest or ANY] * (count - wanted))
        takers = tuple(self.argument(node, kind) for node, kind in zip(arguments, types, strict=False))
        last = last_visited(arguments[-1]) if arguments else at
        checks_final = has_final and types[-1] != ANY
        call, in_loop = function.call, self.in_loop

        def invoke(run: Rendering, dot: Any, final: Any, *bound: Any) -> Any:
            values = [*bound, *[take(run, dot) for take in takers]]
            if has_final:
                if checks_final and type(final) is not PYTHON_TYPES[types[-1]]:
                    raise self._mismatch(last, types[-1], final)
                values.append(final)
            if in_loop:
                run.charge(1 + sum(len(value) for value in values if type(value) is str) // BYTES_PER_STEP)
            try:
                result = call(*values)
            except ValueError as error:
                raise self.fault(caller, f"error calling {name}: {error}") from None
            if type(result) is str and len(result) > MAX_CHARACTERS:
                raise too_long(len(result))
            return result

        return invoke

    def argument(self, node: Operand, wanted: str) -> Evaluate:
        """Compile an argument for a parameter of this type."""
        if isinstance(node, StringLiteral | BoolLiteral | NumberLiteral | Nil):
            return self._literal(node, wanted)
        evaluate = self._label(node) if isinstance(node, FieldPath) and len(node.names) == 1 else self.value(node)
        if wanted == ANY:
            return evaluate
        kind, last, is_field = PYTHON_TYPES[wanted], last_visited(node), isinstance(node, FieldPath | Chain)

        def checked(run: Rendering, dot: Any) -> Any:
            value = evaluate(run, dot)
            if type(value) is not kind:
                raise self._mismatch(last, wanted, value, is_field=is_field)
            return value

        return checked

    def _mismatch(self, node: Node, wanted: str, value: Any, *, is_field: bool = False) -> TemplateError:
        if value is None and not is_field:
            return self.fault(node, f"invalid value; expected {wanted}")
        actual = ANY if value is None else type_name(value)
        return self.fault(node, f"wrong type for value; expected {wanted}; got {actual}")

    def _short_circuit(self, is_or: bool, at: Node, arguments: Sequence[Operand], has_final: bool) -> EvaluateCommand:
        """Compile `and` and `or`, which evaluate no further than they must."""
        if not arguments and not has_final:
            return self._failing(at, f"wrong number of args for {at}: want at least 1 got 0")
        takers = tuple(self.argument(node, ANY) for node in arguments)

        def short_circuit(run: Rendering, dot: Any, final: Any) -> Any:
            value = None
            for take in takers:
                value = take(run, dot)
                if is_true(value) == is_or:
                    return value
            return final if has_final else value

        return short_circuit

    def _call_of_value(self, at: Node, caller: Node, arguments: Sequence[Operand], has_final: bool) -> EvaluateCommand:
        """Compile `call`. No value of ours is a function, so it always fails."""
        if not arguments and not has_final:
            return self._failing(at, "wrong number of args for call: want at least 1 got 0")
        takers = tuple(self.argument(node, ANY) for node in arguments)

        def call(run: Rendering, dot: Any, final: Any) -> Any:
            values = [take(run, dot) for take in takers]
            value = values[0] if values else final
            if value is None:
                raise self.fault(caller, "error calling call: call of nil")
            callee = str(arguments[0]) if arguments else value_text(value)
            raise self.fault(caller, f"error calling call: non-function {callee} of type {type_name(value)}")

        return call

    # ---- fields

    def _follow(
        self,
        names: tuple[str, ...],
        at: Node,
        arguments: tuple[Operand, ...],
        has_final: bool,
        caller: Node | None = None,
    ) -> Callable[[Rendering, Any, Any, Any], Any]:
        """Compile fields of a value. The last may be a method of a time, which takes arguments."""
        has_arguments = bool(arguments) or has_final
        methods: dict[tuple[type, str], Callable[..., Any]] = {}

        def method(receiver: Any, name: str, is_last: bool) -> Callable[..., Any]:
            key = (type(receiver), name)
            if key not in methods:
                function = METHODS[type(receiver)][name]
                given = (arguments, has_final) if is_last else ((), False)
                methods[key] = self.invocation(function, name, at, caller or at, *given)
            return methods[key]

        def follow(run: Rendering, dot: Any, final: Any, receiver: Any) -> Any:
            inside_json = False
            for place, name in enumerate(names, 1):
                kind, is_last = type(receiver), place == len(names)
                inside_json = inside_json or (place == 1 and receiver is run.element)
                if receiver is None:
                    if inside_json:
                        raise self.fault(at, f"nil pointer evaluating interface {{}}.{name}")
                    return None
                if kind in METHODS and name in METHODS[kind]:
                    receiver = method(receiver, name, is_last)(run, dot, final, receiver)
                elif kind not in (dict, JsonMap):
                    shown = ANY if inside_json else type_name(receiver)
                    raise self.fault(at, f"can't evaluate field {name} in type {shown}")
                elif is_last and has_arguments:
                    raise self.fault(at, f"{name} is not a method but has arguments")
                else:
                    receiver = receiver.get(name, "") if kind is dict else receiver.get(name)
                inside_json = kind is JsonMap
            return receiver

        return follow
