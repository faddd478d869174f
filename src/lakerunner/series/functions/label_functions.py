"""Functions that change or join labels, and do not look at values."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from functools import cache, partial

import numpy as np

from lakerunner.model.errors import TooLarge, UserError
from lakerunner.model.labels import NAME, Labels, labels_of, value_of
from lakerunner.model.regex import Regex, compile_capturing
from lakerunner.series.function import Function, Invocation
from lakerunner.series.functions.arguments import STRING, VECTOR, string_of, vector_of
from lakerunner.series.values import Vector, merge_same_labels

MAX_VALUE = 65_536  # characters of a label's value that a query may build
MAX_VALUES = 200_000_000  # of all series together
_REFERENCE = re.compile(r"\$(?:\$|\{(?P<braced>\w+)\}|(?P<plain>\w+))")


def _label_replace(invocation: Invocation) -> Vector:
    target, template, source, pattern = (string_of(invocation, number) for number in range(1, 5))
    try:
        expression = compile_capturing(pattern)
    except UserError as error:
        raise UserError(f"invalid regular expression in label_replace(): {pattern}") from error
    _check_label(target, "destination", "label_replace")

    pieces = template_pieces(template, expression)

    @cache
    def replacement(value: str) -> str | None:
        found = expression.groups(value)
        if found is None:
            return None
        _check_length(len(template) + template.count("$") * len(value), target)
        return "".join(piece if isinstance(piece, str) else found[piece] for piece in pieces)

    return _set_label(vector_of(invocation), target, lambda labels: replacement(value_of(labels, source)))


def _label_join(invocation: Invocation) -> Vector:
    target, separator, *sources = (string_of(invocation, number) for number in range(1, len(invocation.arguments)))
    for source in sources:
        _check_label(source, "source", "label_join")
    _check_label(target, "destination", "label_join")

    def change(labels: Labels) -> str:
        values = [value_of(labels, source) for source in sources]
        _check_length(sum(map(len, values)) + len(separator) * len(values), target)
        return separator.join(values)

    return _set_label(vector_of(invocation), target, change)


def _check_label(name: str, role: str, function: str) -> None:
    """Refuse a label name that is empty or not UTF-8. Any other text is valid."""
    if not name or any("\ud800" <= character <= "\udfff" for character in name):
        raise UserError(f"invalid {role} label name in {function}(): {name}")


def _check_length(length: int, target: str) -> None:
    """Refuse a value before it is built: nested calls could double it each time."""
    if length > MAX_VALUE:
        raise TooLarge(f"label {target} could get a value of {length} characters; a query makes at most {MAX_VALUE}")


def template_pieces(template: str, regex: Regex) -> list[str | int]:
    """Cut a template into texts and group numbers.

    $1, ${1}, $name and ${name} are groups, or nothing if there is no such group; $$ is a dollar. A name is as long as
    possible: $1a is the group named 1a. A dollar before anything else stands for itself."""
    pieces: list[str | int] = []
    at = 0
    for reference in _REFERENCE.finditer(template):
        pieces.append(template[at : reference.start()])
        at = reference.end()
        name = reference["braced"] or reference["plain"]
        if name is None:
            pieces.append("$")
        elif name.isascii() and name.isdigit() and (name == "0" or name[0] != "0"):
            number = int(name) if len(name) < 9 else -1
            pieces.append(number if 0 <= number <= regex.count else "")
        else:
            pieces.append(regex.names.get(name, ""))
    return [*pieces, template[at:]]


def _set_label(vector: Vector, target: str, change: Callable[[Labels], str | None]) -> Vector:
    """Set `target` to the result of `change` for each series; None leaves it as it is. Setting the metric's name keeps
    it from being dropped."""
    values, made = [], 0
    for own in vector.labels:
        values.append(change(own))
        made += len(values[-1] or "")
        if made > MAX_VALUES:
            raise TooLarge(f"label {target} gets values of more than {MAX_VALUES:,} characters together: select fewer")
    labels = [
        own if value is None else labels_of({**dict(own), target: value})
        for own, value in zip(vector.labels, values, strict=True)
    ]
    drop_name = vector.drop_name
    if target == NAME:
        drop_name = drop_name & np.array([value is None for value in values], bool)
    return merge_same_labels(replace(vector, labels=labels, drop_name=drop_name))


# per_series is False: only a vector with all series shows whether two become the same.
_setter = partial(Function, returns=VECTOR, keeps_name=True, per_series=False)
LABEL_FUNCTIONS = (
    _setter("label_replace", (VECTOR, STRING, STRING, STRING, STRING), evaluate=_label_replace),
    _setter("label_join", (VECTOR, STRING, STRING, STRING), evaluate=_label_join, optional=-1),
)
