"""Random queries: what is printed parses to the same; what is worked out in parts is what comes of the whole."""

from __future__ import annotations

import random
from typing import Any

import pytest

from fuzz.promql import ours
from fuzz.promql.compare import difference
from fuzz.promql.data import state
from fuzz.promql.grammar import random_query
from fuzz.promql.parts import InParts
from fuzz.promql.source import StateSource
from lakerunner.model.errors import UserError
from lakerunner.promql.document import document
from lakerunner.promql.parse import parse
from lakerunner.promql.printer import expression_text


def test_what_is_printed_is_read_again() -> None:
    chance = random.Random(1)
    refused: list[str] = []
    for _ in range(300):
        query = random_query(chance)
        try:
            expression = parse(query.text)
        except UserError as error:
            refused.append(error.message)
            continue
        text = expression_text(expression)
        again = parse(text)
        assert expression_text(again) == text, query
        assert _same_order(document(again)) == _same_order(document(expression)), query
    assert len(refused) < 50
    assert all(message.startswith("parse error") for message in refused)


def _same_order(tree: Any) -> Any:
    """Matchers are printed in the order of their text."""
    if isinstance(tree, dict):
        return {name: _same_order(one) for name, one in tree.items()}
    if isinstance(tree, list):
        inside = [_same_order(one) for one in tree]
        return sorted(inside, key=repr) if tree and "value" in tree[0] else inside
    return tree


@pytest.mark.parametrize("number", range(4))
def test_parts_are_the_whole(number: int) -> None:
    """Not a word of the answer may depend on which worker holds which series."""
    chance = random.Random(number)
    delayed_names = number % 2 == 0
    loaded = state(number, delayed_names=delayed_names)
    whole = StateSource(loaded)
    of = {labels: chance.randrange(3) for labels in loaded.series}
    parts = [StateSource(loaded, [labels for labels in of if of[labels] == part]) for part in range(3)]
    for _ in range(50):
        query = random_query(chance)
        expected = ours.answer(query, whole, ours.whole(delayed_names=delayed_names))
        got = ours.answer(query, whole, InParts(parts, delayed_names))
        found = difference(query, got, expected, in_parts=True)
        assert not found, f"{query}\n{found}"
