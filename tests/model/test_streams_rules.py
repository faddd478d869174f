"""Rules for streams: there and back as JSON, and what is refused."""

from __future__ import annotations

from typing import Any

import pytest

from lakerunner.model.errors import UserError
from lakerunner.model.streams.stream_rules import DEFAULT_RULES, Action, AttributeRule, StreamRules

LOKI = {
    "resource_attributes": {
        "ignore_defaults": True,
        "attributes_config": [
            {"action": "index_label", "attributes": ["service.name", "team"]},
            {"action": "drop", "regex": "secret\\..*"},
            {"attributes": ["host.name"]},
        ],
    },
    "scope_attributes": [{"action": "drop", "attributes": ["a"]}],
    "log_attributes": [{"action": "structured_metadata", "regex": "b"}],
    "discover_service_name": ["team"],
    "discover_log_levels": False,
}


def test_there_and_back() -> None:
    rules = StreamRules.from_json(LOKI)
    assert rules.resource == (
        AttributeRule(Action.LABEL, ("service.name", "team")),
        AttributeRule(Action.DROP, regex="secret\\..*"),
        AttributeRule(Action.METADATA, ("host.name",)),
    )
    assert (rules.ignore_defaults, rules.service_labels, rules.detect_levels) == (True, ("team",), False)
    assert StreamRules.from_json(rules.to_json()) == rules
    assert hash(StreamRules.from_json(rules.to_json())) == hash(rules)
    assert StreamRules.from_json({}) == DEFAULT_RULES == StreamRules.from_json(DEFAULT_RULES.to_json())


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ([], "stream rules must be an object, not a list"),
        (None, "stream rules must be an object, not null"),
        (
            {"discover_service_names": []},
            "unknown name 'discover_service_names' in stream rules: use disc",
        ),
        ({"xyz": 1}, "unknown name 'xyz' in stream rules: use resource_attributes, scope_attributes"),
        ({"resource_attributes": []}, "resource_attributes must be an object, not a list"),
        ({"resource_attributes": {"ignore_defaults": "yes"}}, "ignore_defaults must be true or false, not 'yes'"),
        (
            {"resource_attributes": {"attributes_config": {}}},
            "attributes_config must be a list of rules, not an",
        ),
        ({"log_attributes": [{"action": "index_label", "attributes": ["a"]}]}, "is for resource_attributes only"),
        (
            {"scope_attributes": [{"action": "keep", "attributes": ["a"]}]},
            "unknown action 'keep': use one of index_l",
        ),
        ({"scope_attributes": [{"action": "drop"}]}, "needs either `attributes` or `regex`"),
        ({"scope_attributes": [{"attributes": ["a"], "regex": "b"}]}, "needs either `attributes` or `regex`"),
        ({"scope_attributes": [{"attributes": [""]}]}, "keys that are not empty"),
        ({"scope_attributes": [{"attributes": ["\0"]}]}, "characters without NUL"),
        ({"scope_attributes": [{"attributes": ["\ud800"]}]}, "must be UTF-8"),
        ({"scope_attributes": [{"attributes": "a"}]}, "attributes must be a list of texts"),
        ({"scope_attributes": [{"regex": 1}]}, "regex must be a text, not 1"),
        ({"scope_attributes": [{"regex": "a("}]}, "error parsing regexp: missing closing"),
        ({"scope_attributes": [{"regex": "a" * 1025}]}, "at most 1024 characters"),
        ({"scope_attributes": [{"regex": "a"}] * 101}, "too many rules for attributes: the limit is 100"),
        ({"discover_service_name": ["a.b"]}, "must be up to 1000 label names"),
        ({"discover_service_name": "app"}, "discover_service_name must be a list of texts"),
        ({"discover_log_levels": 1}, "discover_log_levels must be true or false, not 1"),
    ],
)
def test_what_is_refused(wrong: Any, message: str) -> None:
    with pytest.raises(UserError) as caught:
        StreamRules.from_json(wrong)
    assert message in str(caught.value)


def test_names_are_remembered_up_to_a_limit() -> None:
    names = StreamRules().record_names
    for number in range(20_001):
        assert names[f"key.{number}"] == (Action.METADATA, f"key_{number}")
    assert len(names) <= 10_000
