"""Files of rules: what was written is read, and any other text is refused with its place."""

from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakerunner.model.errors import Position, TooLarge, UserError
from lakerunner.model.metric_rules.metric_rule import MetricRule
from lakerunner.services.rule_file import FILE_MAX, read_rule_file, write_rule_file
from lakerunner.services.rule_presets import presets
from suites.rules import ERRORS, RULE_LISTS, over_metric, rule

ONE = """\
rules:
  - name: errors
    signal: logs
    selector: '{service_name="cart"} |= "refused"'
    measure: count
    metric: log_errors
    dimensions: [service_name]
"""


def test_a_file_of_one_rule_and_of_none() -> None:
    assert read_rule_file(ONE) == [ERRORS]
    assert read_rule_file("rules: []") == []
    assert read_rule_file('{"rules": []}') == []


@given(RULE_LISTS)
def test_what_was_written_is_read(rules: list[MetricRule]) -> None:
    assert read_rule_file(write_rule_file(rules)) == rules


@given(st.text(max_size=50))
def test_any_texts_of_a_rule_are_read_as_written(text: str) -> None:
    try:
        one = rule("a", selector=text, description=text)
    except UserError:
        return
    assert read_rule_file(write_rule_file([one])) == [one]


@given(st.text(alphabet="rules: -[]{}&*ab!?|<>'\"\n\t#,%@`", max_size=40))
def test_any_text_is_a_file_or_refused(text: str) -> None:
    with suppress(UserError):
        assert read_rule_file(text) == []


def test_examples_and_further_rules_are_read() -> None:
    made = [*presets(), over_metric("a", "x.y", "z"), rule("b", enabled=False)]
    assert read_rule_file(write_rule_file(made)) == made


def test_anchors_and_merge_keys_repeat_values() -> None:
    assert read_rule_file(
        ONE.replace("- name", "- &base\n    name") + "  - {<<: *base, name: b, metric: made_b}\n"
    ) == [ERRORS, rule("b")]


@pytest.mark.parametrize(
    ("text", "message", "place"),
    [
        ("", "has one key, `rules`", None),
        ("rules: 5", "has one key, `rules`", None),
        ("rules: []\nother: []", "has one key, `rules`", None),
        ("rules: [1", "is not YAML: expected ',' or ']'", Position(1, 10)),
        ("rules:\n  - 5", "a rule is a mapping", Position(2, 5)),
        ("rules:\n  - {1: 2}", "a rule is a mapping", Position(2, 5)),
        (ONE + "    metric: other\n", "a key appears twice", Position(2, 5)),
        (ONE + "    colour: red\n", "rule 'errors': a rule has unknown keys ['colour']", Position(2, 5)),
        (ONE.replace("count", "counts"), "rule 'errors': unknown measure 'counts'", Position(2, 5)),
        (ONE + "    max_series: yes\n", "max_series of a rule is a whole number", Position(2, 5)),
        (ONE + "    max_series: 0x" + "f" * 10_000, "max_series is at least 1 and at most 1000000", Position(2, 5)),
        (ONE + "    max_series: " + "9" * 5_000, "is not YAML: Exceeds the limit", None),
        (ONE + "    max_series: 2001-99-99", "is not YAML: month must be in 1..12", None),
        ("rules: [!!python/object/apply:os.getcwd []]", "could not determine a constructor", Position(1, 9)),
        ("rules: []\n---\nrules: []", "another document", Position(2, 1)),
        ("rules: " + "[" * 100_000, "recursion", None),
        ("\x01", "special characters are not allowed", None),
        ("rules: [{? [a] : b}]", "unhashable key", Position(1, 12)),
        ("rules: &a [*a]", "a rule is a mapping", Position(1, 8)),
    ],
)
def test_what_is_wrong_is_refused_with_its_place(text: str, message: str, place: Position | None) -> None:
    with pytest.raises(UserError) as refused:
        read_rule_file(text)
    assert (message in refused.value.message, refused.value.position) == (True, place), refused.value


def test_size_is_limited_and_aliases_do_not_multiply() -> None:
    with pytest.raises(TooLarge, match="1048577 characters; the limit is 1048576"):
        read_rule_file("#" * (FILE_MAX + 1))
    doubled = "rules:\n- &a0 [x, x]\n" + "".join(f"- &a{n + 1} [*a{n}, *a{n}]\n" for n in range(100))
    with pytest.raises(UserError, match="a rule is a mapping"):
        read_rule_file(doubled)
