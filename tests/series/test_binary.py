"""Binary operators: values by hand, and against a model that goes from step to step and pair to pair."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lakerunner.model.errors import UserError
from lakerunner.model.labels import Labels
from lakerunner.promql.selection.notes import WORDS
from lakerunner.series.binary.apply import apply_binary, negate
from lakerunner.series.expression import Binary, Matching, Selector, Span
from lakerunner.series.histograms.histogram import CUSTOM_BUCKETS, Histogram, ResetHint
from lakerunner.series.notes import Notes
from lakerunner.series.values import Scalar, Vector, merge_same_labels
from suites.vectors import Rows, floats, named, rows, vector

ANY = Selector(())
ONE_TO_ONE = Matching()


def on(*labels: str, card: str = "one-to-one", **more: object) -> Matching:
    return Matching(card, labels, True, **more)  # type: ignore[arg-type]


def ignoring(*labels: str, card: str = "one-to-one", **more: object) -> Matching:
    return Matching(card, labels, False, **more)  # type: ignore[arg-type]


def done(
    op: str,
    left: Vector | Scalar,
    right: Vector | Scalar,
    matching: Matching | None = ONE_TO_ONE,
    *,
    return_bool: bool = False,
) -> tuple[Vector, list[str]]:
    if op in ("and", "or", "unless") and matching is ONE_TO_ONE:
        matching = Matching("many-to-many")
    notes = Notes(WORDS)
    steps = left.values.shape[-1]
    node = Binary(op, ANY, ANY, matching, return_bool, Span(3, 9))
    result = apply_binary(node, left, right, notes)
    assert isinstance(result, Vector)
    if isinstance(left, Vector) and isinstance(right, Vector) and steps > 1:
        result = merge_same_labels(result)  # as the evaluator does
    return result, [f"{note.level}: {note.message} @{note.start}" for note in notes.all()]


def scalar(*values: float) -> Scalar:
    return Scalar(np.array(values))


A, B, C = named(i="a"), named(i="b"), named(i="c")
LEFT = vector([(named("l", i="a"), [10.0, 20.0]), (named("l", i="b"), [30.0, None])])
RIGHT = vector([(named("r", i="a"), [3.0, 4.0]), (named("r", i="c"), [5.0, 6.0])])


def test_numbers() -> None:
    for op, expected in {
        "+": 10.0,
        "-": 4.0,
        "*": 21.0,
        "/": 7 / 3,
        "%": 1.0,
        "^": 343.0,
        "atan2": math.atan2(7, 3),
        "==": 0.0,
        "!=": 1.0,
        "<": 0.0,
        ">": 1.0,
        "<=": 0.0,
        ">=": 1.0,
    }.items():
        result = apply_binary(Binary(op, ANY, ANY), scalar(7.0), scalar(3.0), Notes(WORDS))
        assert isinstance(result, Scalar)
        assert result.values.tolist() == [expected], op


def test_division_by_zero_is_no_error() -> None:
    result = apply_binary(Binary("/", ANY, ANY), scalar(1.0, 0.0, -1.0), scalar(0.0, 0.0, 0.0), Notes(WORDS))
    assert str(result.values.tolist()) == "[inf, nan, -inf]"


def test_a_vector_and_a_number() -> None:
    result, _ = done("+", LEFT, scalar(1.0, 2.0), None)
    assert floats(result) == {named("l", i="a"): [11, 22], named("l", i="b"): [31, None]}
    assert result.drop_name.all()
    assert floats(done("-", scalar(1.0, 2.0), LEFT, None)[0])[named("l", i="a")] == [-9, -18]


def test_a_comparison_lets_through_and_keeps_the_name() -> None:
    for result, _ in (done(">", LEFT, scalar(15.0, 15.0), None), done("<", scalar(15.0, 15.0), LEFT, None)):
        assert floats(result) == {named("l", i="a"): [None, 20], named("l", i="b"): [30, None]}
        assert not result.drop_name.any()
    result, _ = done(">", LEFT, scalar(15.0, 15.0), None, return_bool=True)
    assert floats(result) == {named("l", i="a"): [0, 1], named("l", i="b"): [1, None]}
    assert result.drop_name.all()


def test_minus() -> None:
    histogram = Histogram(0, 2.0, 3.0)
    result = negate(vector([(named("m", i="a"), [1.0, histogram])]))
    assert result.drop_name.all()
    assert [result.values[0, 0], result.histograms[0, 1].count] == [-1, -2]  # type: ignore[index]


# ---- matching


def test_one_to_one() -> None:
    result, _ = done("/", LEFT, RIGHT)
    assert floats(result) == {A: [10 / 3, 5]}
    assert not result.drop_name.any()  # the name is gone at once
    assert floats(done(">", LEFT, RIGHT)[0]) == {named("l", i="a"): [10, 20]}
    result, _ = done("==", LEFT, RIGHT, return_bool=True)
    assert floats(result) == {named("l", i="a"): [0, 0]}
    assert result.drop_name.all()


def test_on_and_ignoring_say_which_labels_stay() -> None:
    left = vector([(named("l", i="a", x="1"), [1.0])])
    right = vector([(named("r", i="a", x="2"), [2.0])])
    assert rows(done("+", left, right)[0]) == []
    assert floats(done("+", left, right, on("i"))[0]) == {A: [3]}
    assert floats(done("+", left, right, ignoring("x"))[0]) == {A: [3]}
    assert floats(done("<", left, right, on("i"))[0]) == {A: [1]}
    assert floats(done("<", left, right, ignoring("x"))[0]) == {named("l", i="a"): [1]}
    assert floats(done("<", left, right, on("i", card="many-to-one"))[0]) == {named("l", i="a", x="1"): [1]}


def test_many_to_one_with_labels_of_the_one() -> None:
    many = vector([(named("l", i="a", n="1"), [1.0]), (named("l", i="a", n="2", role="x"), [2.0])])
    one = vector([(named("r", i="a", role="db"), [10.0])])
    expected = {named(i="a", n="1", role="db"): [10.0], named(i="a", n="2", role="db"): [20.0]}
    assert floats(done("*", many, one, on("i", card="many-to-one", include=("role",)))[0]) == expected
    assert floats(done("*", one, many, on("i", card="one-to-many", include=("role",)))[0]) == expected
    gone = on("i", card="many-to-one", include=("absent", "role"))
    assert floats(done("*", many, vector([(named("r", i="a"), [10.0])]), gone)[0]) == {
        named(i="a", n="1"): [10.0],
        named(i="a", n="2"): [20.0],
    }
    assert floats(done("-", one, many, on("i", card="one-to-many"))[0]) == {
        named(i="a", n="1"): [9.0],
        named(i="a", n="2", role="x"): [8.0],
    }


def test_two_series_on_the_one_side() -> None:
    right = vector([(named("r", i="a", x="2"), [1.0, None]), (named("r", i="a", x="1"), [None, 2.0])])
    left = vector([(named("l", i="a"), [10.0, 20.0])])
    assert floats(done("+", left, right, on("i"))[0]) == {A: [11, 22]}  # never at once
    both = vector([(named("r", i="a", x="2"), [None, 1.0]), (named("r", i="a", x="1"), [None, 2.0])])
    message = (
        'found duplicate series for the match group {i="a"} on the right hand-side of the operation: '
        '[{__name__="r", i="a", x="1"}, {__name__="r", i="a", x="2"}];many-to-many matching not allowed: matching '
        "labels must be unique on one side"
    )
    with pytest.raises(UserError) as error:
        done("+", left, both, on("i"))
    assert str(error.value) == message
    with pytest.raises(UserError, match="on the left hand-side"):
        done("+", both, left, on("i", card="one-to-many"))
    never = vector([(named("l", i="a"), [10.0, None])])
    assert rows(done("+", never, both, on("i"))[0]) == []  # nothing to do where the two are


def test_several_on_the_many_side() -> None:
    left = vector([(named("l", i="a", x="1"), [1.0, None]), (named("l", i="a", x="2"), [None, 2.0])])
    right = vector([(named("r", i="a"), [10.0, 20.0])])
    assert floats(done("+", left, right, on("i"))[0]) == {A: [11, 22]}
    at_once = vector([(named("l", i="a", x="1"), [1.0]), (named("l", i="a", x="2"), [2.0])])
    one = vector([(named("r", i="a"), [10.0])])
    with pytest.raises(UserError, match=r"^multiple matches for labels: many-to-one matching must be explicit \(gr"):
        done(">", at_once, one, on("i"))
    with pytest.raises(UserError, match=r"^multiple matches for labels: grouping labels must ensure unique matches$"):
        done("+", at_once, one, on("i", card="many-to-one", include=("x",)))


def test_results_of_two_groups_with_the_same_labels() -> None:
    left = vector([(named("l", i="a", x="1"), [1.0, 2.0]), (named("l", i="b", x="1"), [3.0, None])])
    right = vector([(named("r", i="a", y="9"), [1.0, 1.0]), (named("r", i="b", y="9"), [1.0, 1.0])])
    same = on("i", card="many-to-one", include=("i_",))
    assert len(rows(done("+", left, right, same)[0])) == 2
    one = vector([(named("l", i="a"), [1.0, None]), (named("m", i="a"), [None, 3.0])])
    two = vector([(named("l", i="a"), [5.0, 5.0]), (named("m", i="a"), [5.0, 5.0])])
    assert floats(done("+", one, two, on("__name__", card="many-to-one"))[0]) == {A: [6, 8]}
    twice = vector([(named("l", i="a"), [1.0, None]), (named("m", i="a"), [2.0, 3.0])])
    with pytest.raises(UserError, match=r"^vector cannot contain metrics with the same labelset$"):
        done("+", twice, two, on("__name__", card="many-to-one"))


def test_results_have_no_empty_labels() -> None:
    left = vector([((("i", "a"), ("parsed", "")), [1.0])])
    right = vector([(named("r", i="a"), [2.0])])
    for matching in (on("i", card="many-to-one"), ignoring("parsed", "__name__", card="many-to-one")):
        assert floats(done("+", left, right, matching)[0]) == {(("i", "a"),): [3]}
    alike = vector([((("i", "a"), ("parsed", "")), [2.0])])
    assert floats(done("*", left, alike, None)[0]) == {(("i", "a"),): [2]}


def test_what_is_missing_is_filled() -> None:
    assert floats(done("+", LEFT, RIGHT, Matching(fill_right=0.0))[0]) == {A: [13, 24], B: [30, None]}
    assert floats(done("+", LEFT, RIGHT, Matching(fill_left=1.0))[0]) == {A: [13, 24], C: [6, 7]}
    assert floats(done("-", LEFT, RIGHT, Matching(fill_left=1.0, fill_right=2.0))[0]) == {
        A: [7, 16],
        B: [28, None],
        C: [-4, -5],
    }


def test_a_group_is_filled_at_the_steps_where_it_misses() -> None:
    left = vector([(named("l", i="a"), [1.0, None, 3.0])])
    right = vector([(named("r", i="a"), [10.0, 20.0, None])])
    assert floats(done("+", left, right, Matching(fill_left=0.5, fill_right=0.25))[0]) == {A: [11, 20.5, 3.25]}


def test_fills_of_a_one_to_many_are_those_of_the_many_and_the_one() -> None:
    one = vector([(named("meta", i="a"), [100.0]), (named("meta", i="c"), [300.0])])
    many = vector([(named("cpu", i="a", n="0"), [1.0]), (named("cpu", i="b", n="0"), [2.0])])
    found = done("*", one, many, on("i", card="one-to-many", fill_left=1.0))[0]
    assert floats(found) == {named(i="a", n="0"): [100], C: [300]}
    found = done("-", one, many, on("i", card="one-to-many", fill_right=7.0))[0]
    assert floats(found) == {named(i="a", n="0"): [99], named(i="b", n="0"): [5]}


# ---- sets


def test_sets() -> None:
    la, lb, ra, rc = named("l", i="a"), named("l", i="b"), named("r", i="a"), named("r", i="c")
    assert floats(done("and", LEFT, RIGHT)[0]) == {la: [10, 20]}
    assert floats(done("unless", LEFT, RIGHT)[0]) == {lb: [30, None]}
    assert floats(done("or", LEFT, RIGHT)[0]) == {la: [10, 20], lb: [30, None], rc: [5, 6]}
    late = vector([(la, [None, 1.0])])
    assert floats(done("or", late, RIGHT)[0]) == {la: [None, 1], ra: [3, None], rc: [5, 6]}
    assert floats(done("and", LEFT, RIGHT, on(card="many-to-many"))[0]) == {la: [10, 20], lb: [30, None]}


def test_or_makes_one_series_of_two_that_take_turns() -> None:
    early, late = vector([(A, [1.0, None])]), vector([(A, [5.0, 6.0])])
    result = done("or", early, late)[0]
    assert floats(result) == {A: [1, 6]}
    assert len(result) == 1


def test_sets_keep_what_is_to_become_of_names() -> None:
    left = vector([(named("l", i="a"), [1.0])], drop_name=[True])
    result = done("or", left, RIGHT.rows([1]).__class__([named("r", i="c")], np.array([[5.0]]), np.array([[True]])))[0]
    assert result.drop_name.tolist() == [True, False]


# ---- histograms


def histogram(count: float, hint: ResetHint = ResetHint.UNKNOWN, bounds: tuple[float, ...] = ()) -> Histogram:
    return Histogram(CUSTOM_BUCKETS if bounds else 0, count, count * 2, custom_values=bounds, reset_hint=hint)


def of(*samples: float | Histogram, name: str = "m") -> Vector:
    return vector([(named(name, i="a"), list(samples))])


def only(given_: tuple[Vector, list[str]]) -> tuple[object, list[str]]:
    found = [sample for _, samples in rows(given_[0]) for sample in samples]
    assert len(found) <= 1
    return (found[0] if found else None), given_[1]


def test_histograms_and_numbers() -> None:
    for left, right in ((of(histogram(4)), scalar(2.0)), (scalar(2.0), of(histogram(4)))):
        result, notes = only(done("*", left, right, None))
        assert isinstance(result, Histogram)
        assert (result.count, result.sum, notes) == (8, 16, [])
    result, _ = only(done("/", of(histogram(4)), scalar(2.0), None))
    assert isinstance(result, Histogram)
    assert result.count == 2
    assert only(done("/", scalar(2.0), of(histogram(4)), None)) == (
        None,
        ['info: incompatible sample types encountered for binary operator "/": float / histogram @3'],
    )
    for op in ("+", "-", "^", "%", "==", "!=", "<", "atan2"):
        assert only(done(op, of(histogram(4)), scalar(2.0), None)) == (
            None,
            [f'info: incompatible sample types encountered for binary operator "{op}": histogram {op} float @3'],
        )


def test_histograms_and_histograms() -> None:
    result, notes = only(done("+", of(histogram(4)), of(histogram(1))))
    assert isinstance(result, Histogram)
    assert (result.count, notes) == (5, [])
    result, _ = only(done("-", of(histogram(4)), of(histogram(1))))
    assert isinstance(result, Histogram)
    assert (result.count, result.reset_hint) == (3, ResetHint.GAUGE)
    assert only(done("*", of(histogram(4)), of(histogram(1)))) == (
        None,
        ['info: incompatible sample types encountered for binary operator "*": histogram * histogram @3'],
    )


def test_equal_histograms() -> None:
    same, other = of(histogram(4)), of(histogram(5))
    assert isinstance(only(done("==", same, same))[0], Histogram)
    assert only(done("==", same, other)) == (None, [])
    assert isinstance(only(done("!=", same, other))[0], Histogram)
    assert only(done("==", same, other, return_bool=True)) == (0.0, [])
    assert only(done("==", same, same, return_bool=True)) == (1.0, [])


def test_what_is_said_of_histograms_that_do_not_fit() -> None:
    assert only(done("+", of(histogram(4)), of(histogram(1, bounds=(1.0,))))) == (
        None,
        ["warning: incompatible bucket layout encountered for binary operator + @3"],
    )
    result, notes = only(done("+", of(histogram(4, bounds=(1.0, 2.0))), of(histogram(1, bounds=(1.0,)))))
    assert isinstance(result, Histogram)
    assert notes == ["info: mismatched custom buckets were reconciled during addition @3"]
    clash = of(histogram(4, ResetHint.RESET)), of(histogram(1, ResetHint.NOT_RESET))
    assert only(done("+", *clash)) == (None, ["warning: conflicting counter resets during histogram addition @3"])


def test_trims_are_for_histograms() -> None:
    assert only(done("</", of(1.0), scalar(2.0), None)) == (
        None,
        ['info: incompatible sample types encountered for binary operator "</": float </ float @3'],
    )
    assert isinstance(only(done("</", of(histogram(4)), scalar(2.0), None))[0], Histogram)
    result, notes = done("</", scalar(2.0), of(histogram(4)), None)
    assert (rows(result), result.values.shape) == ([], (1, 1))
    assert notes == ['info: incompatible sample types encountered for binary operator "</": float </ histogram @3']


def test_the_last_note_of_a_step_counts() -> None:
    left = vector([(A, [histogram(1)]), (B, [1.0])])
    right = vector([(A, [1.0]), (B, [histogram(1)])])
    assert done("+", left, right)[1] == [
        'info: incompatible sample types encountered for binary operator "+": float + histogram @3'
    ]


def test_the_last_note_may_be_that_of_a_filled_pair() -> None:
    left, right = vector([(A, [histogram(1)])]), vector([(A, [1.0]), (B, [histogram(1)])])
    assert done("/", left, right, Matching(fill_left=1.0))[1] == [
        'info: incompatible sample types encountered for binary operator "/": float / histogram @3'
    ]


# ---- the model

OPERATORS: Mapping[str, Callable[[float, float], float]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    ">": operator.gt,
    "==": operator.eq,
}


@st.composite
def sides(draw: st.DrawFn, name: str, steps: int) -> Vector:
    keys = draw(st.lists(st.tuples(st.sampled_from("ab"), st.sampled_from("xyz")), max_size=5, unique=True))
    samples = st.one_of(st.none(), st.sampled_from([0.0, 1.0, 2.0, 3.0]))
    return vector([(named(name, i=i, x=x), [draw(samples) for _ in range(steps)]) for i, x in keys], steps=steps)


@st.composite
def matchings(draw: st.DrawFn) -> Matching:
    return Matching(
        draw(st.sampled_from(["one-to-one", "many-to-one", "one-to-many"])),
        draw(st.sampled_from([(), ("i",), ("x",)])),
        draw(st.booleans()),
        fill_left=draw(st.sampled_from([None, None, 1.0])),
        fill_right=draw(st.sampled_from([None, None, 2.0])),
    )


@settings(max_examples=150)
@given(st.data(), matchings(), st.sampled_from(sorted(OPERATORS)), st.booleans())
def test_what_the_model_says(data: st.DataObject, matching: Matching, op: str, return_bool: bool) -> None:
    steps = data.draw(st.integers(1, 3))
    left, right = data.draw(sides("l", steps)), data.draw(sides("r", steps))
    return_bool = return_bool and op in (">", "==")
    try:
        expected: object = _model(op, rows(left), rows(right), matching, return_bool, steps)
    except UserError as error:
        expected = str(error)
    try:
        found: object = floats(done(op, left, right, matching, return_bool=return_bool)[0])
    except UserError as error:
        found = str(error).split(":")[0].split(" the ")[0]
    assert found == expected


@settings(max_examples=80)
@given(st.data(), matchings())
def test_what_the_model_says_of_sets(data: st.DataObject, how: Matching) -> None:
    steps = data.draw(st.integers(1, 3))
    left, right = data.draw(sides("l", steps)), data.draw(sides("r", steps))
    matching = Matching("many-to-many", how.labels, how.on)
    for op in ("and", "or", "unless"):
        expected: dict[Labels, list[float | None]] = {}
        for step in range(steps):
            ours, theirs = _at(rows(left), step), _at(rows(right), step)
            ours_, theirs_ = {_key(one, how) for one, _ in ours}, {_key(one, how) for one, _ in theirs}
            kept = [pair for pair in ours if op == "or" or (_key(pair[0], how) in theirs_) == (op == "and")]
            kept += [pair for pair in theirs if op == "or" and _key(pair[0], how) not in ours_]
            for labels, value in kept:
                expected.setdefault(labels, [None] * steps)[step] = value
        assert floats(done(op, left, right, matching)[0]) == expected


def _at(given_: Rows, step: int) -> list[tuple[Labels, float]]:
    return [(labels, samples[step]) for labels, samples in given_ if samples[step] is not None]  # type: ignore[misc]


def _key(labels: Labels, matching: Matching) -> Labels:
    if matching.on:
        return tuple(pair for pair in labels if pair[0] in matching.labels)
    return tuple(pair for pair in labels if pair[0] not in (*matching.labels, "__name__"))


def _model(op: str, left: Rows, right: Rows, matching: Matching, return_bool: bool, steps: int) -> object:
    found: dict[Labels, list[float | None]] = {}
    swapped = matching.card == "one-to-many"
    for step in range(steps):
        many, one = (_at(right, step), _at(left, step)) if swapped else (_at(left, step), _at(right, step))
        for labels, value in _step(op, many, one, matching, return_bool):
            row = found.setdefault(labels, [None] * steps)
            if row[step] is not None:
                raise UserError("vector cannot contain metrics with the same labelset")
            row[step] = value
    return found


def _step(
    op: str, many: list[tuple[Labels, float]], one: list[tuple[Labels, float]], matching: Matching, return_bool: bool
) -> list[tuple[Labels, float]]:
    filled = matching.fill_left is not None or matching.fill_right is not None
    if not (many or one) or (not filled and not (many and one)):
        return []
    by_key: dict[Labels, tuple[Labels, float]] = {}
    for labels, value in one:
        if _key(labels, matching) in by_key:
            raise UserError("found duplicate series for")
        by_key[_key(labels, matching)] = (labels, value)
    pairs: list[tuple[Labels, Labels, float, float]] = []
    for labels, value in many:
        key = _key(labels, matching)
        if key in by_key:
            pairs.append((key, labels, value, by_key[key][1]))
        elif matching.fill_right is not None:
            pairs.append((key, labels, value, matching.fill_right))
    if matching.fill_left is not None:
        seen = {pair[0] for pair in pairs}
        pairs += [(key, key, matching.fill_left, by_key[key][1]) for key in by_key if key not in seen]
    return _results(op, pairs, matching, return_bool)


def _results(
    op: str, pairs: list[tuple[Labels, Labels, float, float]], matching: Matching, return_bool: bool
) -> list[tuple[Labels, float]]:
    results: list[tuple[Labels, float]] = []
    matched: set[object] = set()
    for key, labels, of_many, of_one in pairs:
        left, right = (of_one, of_many) if matching.card == "one-to-many" else (of_many, of_one)
        kept = labels if op in (">", "==") else tuple(pair for pair in labels if pair[0] != "__name__")
        if matching.card == "one-to-one":
            kept = tuple(pair for pair in kept if (pair[0] in matching.labels) == matching.on)
        which = key if matching.card == "one-to-one" else (key, kept)
        if which in matched:
            raise UserError("multiple matches for labels")
        matched.add(which)
        value = OPERATORS[op](left, right)
        if op in (">", "==") and not return_bool:
            if value:
                results.append((kept, left))
        else:
            results.append((kept, float(value)))
    return results
