"""Templates in the language of Go's text/template, compiled once and rendered for each line or alert.

Comes in: the text of a template and the functions that it may call; then labels, a line and times for each rendering.
Goes out: text. What always holds: output and errors are those of Go with `missingkey=zero`, a label that is missing is
empty, and a rendering ends within the limits of limits.py (docs/decisions/0026).
"""

from __future__ import annotations

from collections.abc import Mapping

from lakerunner.model.templates.builtin_functions import BUILTINS
from lakerunner.model.templates.evaluation import Program
from lakerunner.model.templates.go_values import TemplateError
from lakerunner.model.templates.limits import too_deep
from lakerunner.model.templates.nodes import Action, FieldPath, Tree, field_names
from lakerunner.model.templates.parsing import parse_template
from lakerunner.model.templates.signatures import Functions, Rendering

__all__ = ["Template", "TemplateError", "compile_template"]

_SPECIAL = frozenset({"and", "or", "call"})  # functions that the evaluator treats by itself


class Template:
    """A compiled template. It holds no state of a rendering, so that threads may share it."""

    def __init__(self, tree: Tree, functions: Functions) -> None:
        self._tree = tree
        self._program = Program(tree, functions)
        self.field_names = tuple(dict.fromkeys(field_names(tree.bodies[tree.name])))
        self.only_field = _only_field(tree)

    def render(self, labels: Mapping[str, str], line: str, timestamp_ns: int, now_ns: int) -> str:
        """Return the output. Raise TemplateError where Go fails, TooLarge beyond a limit."""
        run = Rendering(line, timestamp_ns, now_ns, [])
        data = labels if type(labels) is dict else dict(labels)
        try:
            self._program.run(self._tree.name, run, data)
        except RecursionError:
            raise too_deep() from None
        return "".join(run.parts)


def _only_field(tree: Tree) -> str | None:
    """Return the field of a template that is nothing but `{{.field}}`, or that sets a variable to it."""
    body = tree.bodies[tree.name]
    if len(body) != 1 or not isinstance(body[0], Action):
        return None
    commands = body[0].pipeline.commands
    word = commands[0].words[0]
    is_alone = len(commands) == 1 and len(commands[0].words) == 1
    return word.names[0] if is_alone and isinstance(word, FieldPath) and len(word.names) == 1 else None


def compile_template(text: str, functions: Functions, *, name: str = "template") -> Template:
    """Parse and compile a template; `name` is its name in errors. Raise TemplateError for a text that is wrong."""
    return Template(parse_template(name, text, {*functions, *BUILTINS, *_SPECIAL}), functions)
