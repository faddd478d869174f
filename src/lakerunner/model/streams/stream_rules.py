"""The rules of an organization for its streams: what becomes a label, what metadata, and what is found out.

Comes in: the settings that Loki has for a tenant, as JSON with Loki's names (docs/formats/streams.md). Goes out: what
is done with each attribute. What always holds: rules are checked when they are made; of several rules for an attribute
the first decides; Loki's list of resource attributes that are labels comes before the organization's own rules, unless
that is switched off. They concern reading alone, so they also apply to rows that were stored before.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from enum import StrEnum
from functools import cached_property
from typing import Any

from lakerunner.model.errors import UserError
from lakerunner.model.regex import compile_regex
from lakerunner.model.streams.label_names import is_label_name, label_name

RESOURCE_LABELS = (
    "service.name",
    "service.namespace",
    "service.instance.id",
    "deployment.environment",
    "deployment.environment.name",
    "cloud.region",
    "cloud.availability_zone",
    "k8s.cluster.name",
    "k8s.namespace.name",
    "k8s.pod.name",
    "k8s.container.name",
    "container.name",
    "k8s.replicaset.name",
    "k8s.deployment.name",
    "k8s.statefulset.name",
    "k8s.daemonset.name",
    "k8s.cronjob.name",
    "k8s.job.name",
)
SERVICE_LABELS = (
    "service",
    "app",
    "application",
    "app_name",
    "name",
    "app_kubernetes_io_name",
    "container",
    "container_name",
    "k8s_container_name",
    "component",
    "workload",
    "job",
    "k8s_job_name",
)
OWN_PREFIX = "lakerunner."  # of attributes that ingest adds (docs/formats/attributes.md); Loki has nothing like them
MAX_RULES = 100
MAX_NAMES = 1000
MAX_TEXT = 1024  # characters of a key or a regular expression
_NOT_STORED = re.compile("[\0\ud800-\udfff]")  # PostgreSQL's JSON refuses them
_MAX_KNOWN = 10_000  # keys whose names are remembered


class Action(StrEnum):
    """What is done with an attribute."""

    LABEL = "index_label"
    METADATA = "structured_metadata"
    DROP = "drop"


@dataclass(frozen=True)
class AttributeRule:
    """What is done with these attributes, or with those whose whole key matches the regular expression."""

    action: Action
    attributes: tuple[str, ...] = ()
    regex: str = ""

    def __post_init__(self) -> None:
        if bool(self.attributes) == bool(self.regex):
            raise UserError("a rule for attributes needs either `attributes` or `regex`")
        if "" in self.attributes or len(self.attributes) > MAX_NAMES:
            raise UserError(f"`attributes` must be 1 to {MAX_NAMES} keys that are not empty")
        if any(len(text) > MAX_TEXT or _NOT_STORED.search(text) for text in (*self.attributes, self.regex)):
            raise UserError(f"a key or regex must be UTF-8 of at most {MAX_TEXT} characters without NUL")
        if self.regex:
            compile_regex(self.regex)

    def applies_to(self, key: str) -> bool:
        return compile_regex(self.regex).matches(key) if self.regex else key in self.attributes


Rules = tuple[AttributeRule, ...]
_DEFAULT: Rules = (AttributeRule(Action.LABEL, RESOURCE_LABELS),)


class AttributeNames(dict[str, tuple[Action, str]]):
    """The action and the label name of each attribute key. They are found when a key is first asked for."""

    def __init__(self, rules: Rules) -> None:
        super().__init__()
        self._rules = rules

    def __missing__(self, key: str) -> tuple[Action, str]:
        if len(self) >= _MAX_KNOWN:
            self.clear()
        name = label_name(key)
        own = not name or key.startswith(OWN_PREFIX)
        action = Action.DROP if own else next((r.action for r in self._rules if r.applies_to(key)), Action.METADATA)
        self[key] = action, name
        return action, name


@dataclass(frozen=True)
class StreamRules:
    """`resource`, `scope` and `record` are rules for the attributes of each. `service_labels` are the labels among
    which a stream without `service_name` finds it; empty: it stays without."""

    resource: Rules = ()
    scope: Rules = ()
    record: Rules = ()
    ignore_defaults: bool = False
    service_labels: tuple[str, ...] = SERVICE_LABELS
    detect_levels: bool = True

    def __post_init__(self) -> None:
        if len(self.resource) + len(self.scope) + len(self.record) > MAX_RULES:
            raise UserError(f"too many rules for attributes: the limit is {MAX_RULES}")
        if any(rule.action is Action.LABEL for rule in (*self.scope, *self.record)):
            raise UserError(
                f"action {Action.LABEL} is for resource_attributes only: a stream has the labels of its resource"
            )
        wrong = [name for name in self.service_labels if not is_label_name(name)]
        if wrong or len(self.service_labels) > MAX_NAMES:
            raise UserError(f"discover_service_name must be up to {MAX_NAMES} label names, not {wrong[:1] or 'more'}")

    @cached_property
    def resource_names(self) -> AttributeNames:
        return AttributeNames((() if self.ignore_defaults else _DEFAULT) + self.resource)

    @cached_property
    def scope_names(self) -> AttributeNames:
        return AttributeNames(self.scope)

    @cached_property
    def record_names(self) -> AttributeNames:
        return AttributeNames(self.record)

    def to_json(self) -> dict[str, Any]:
        """Return what `from_json` reads."""
        return {
            "resource_attributes": {
                "ignore_defaults": self.ignore_defaults,
                "attributes_config": _rules_to_json(self.resource),
            },
            "scope_attributes": _rules_to_json(self.scope),
            "log_attributes": _rules_to_json(self.record),
            "discover_service_name": list(self.service_labels),
            "discover_log_levels": self.detect_levels,
        }

    @classmethod
    def from_json(cls, value: Any) -> StreamRules:
        """Read rules; what is not named is as in Loki. Raise UserError that says what is wrong."""
        members = _object(value, "stream rules", tuple(cls().to_json()))
        resource = _object(
            members.get("resource_attributes", {}), "resource_attributes", ("ignore_defaults", "attributes_config")
        )
        return cls(
            _rules_of_json(resource.get("attributes_config", []), "attributes_config"),
            _rules_of_json(members.get("scope_attributes", []), "scope_attributes"),
            _rules_of_json(members.get("log_attributes", []), "log_attributes"),
            _flag(resource.get("ignore_defaults", False), "ignore_defaults"),
            _texts(members.get("discover_service_name", list(SERVICE_LABELS)), "discover_service_name"),
            _flag(members.get("discover_log_levels", True), "discover_log_levels"),
        )


DEFAULT_RULES = StreamRules()


def _rules_to_json(rules: Rules) -> list[dict[str, Any]]:
    return [
        {"action": rule.action.value} | ({"regex": rule.regex} if rule.regex else {"attributes": list(rule.attributes)})
        for rule in rules
    ]


def _rules_of_json(value: Any, name: str) -> Rules:
    if not isinstance(value, list):
        raise UserError(f"{name} must be a list of rules, not {_kind(value)}")
    return tuple(_rule_of_json(_object(rule, name, ("action", "attributes", "regex"))) for rule in value)


def _rule_of_json(rule: Mapping[str, Any]) -> AttributeRule:
    action, regex = rule.get("action", Action.METADATA.value), rule.get("regex", "")
    if action not in list(Action):
        raise UserError(f"unknown action {action!r}: use one of {', '.join(Action)}")
    if not isinstance(regex, str):
        raise UserError(f"regex must be a text, not {_kind(regex)}")
    return AttributeRule(Action(action), _texts(rule.get("attributes", []), "attributes"), regex)


def _object(value: Any, name: str, known: tuple[str, ...]) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise UserError(f"{name} must be an object, not {_kind(value)}")
    for member in value:
        if member not in known:
            near = get_close_matches(member, known, 1)
            raise UserError(f"unknown name {member!r} in {name}: use {near[0] if near else ', '.join(known)}")
    return value


def _texts(value: Any, name: str) -> tuple[str, ...]:
    if not isinstance(value, list) or not all(isinstance(one, str) for one in value):
        raise UserError(f"{name} must be a list of texts")
    return tuple(value)


def _flag(value: Any, name: str) -> bool:
    if not isinstance(value, bool):
        raise UserError(f"{name} must be true or false, not {_kind(value)}")
    return value


def _kind(value: Any) -> str:
    return {"NoneType": "null", "dict": "an object", "list": "a list"}.get(type(value).__name__, repr(value)[:40])
