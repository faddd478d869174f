"""and, or, unless: series of one vector that have, or have not, a counterpart in the other, step by step."""

from __future__ import annotations

from dataclasses import replace

from lakerunner.series.binary.vector_matching import Sides, sides
from lakerunner.series.expression import Binary, Matching
from lakerunner.series.united import joined
from lakerunner.series.values import Vector

SET_OPERATORS = ("and", "or", "unless")


def set_operation(node: Binary, left: Vector, right: Vector) -> Vector:
    both = sides(left, right, node.matching or Matching("many-to-many"))
    if node.op == "or":
        return _either(both)
    there = both.one_there()[both.many_groups]
    return replace(left, present=left.present & (there if node.op == "and" else ~there))


def _either(both: Sides) -> Vector:
    """All of the left, and of the right what has no counterpart there."""
    left, right = both.many, both.one
    alone = ~both.any_of(left.present, both.many_groups)[both.one_groups]
    right = replace(right, present=right.present & alone).occupied()
    return joined(left, right)
