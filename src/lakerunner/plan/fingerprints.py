"""Which segments can hold rows that meet a scan's conditions, as far as their fingerprints say (model/fingerprint.py).

Comes in: conditions. Goes out: groups of fingerprints, of each of which a segment needs one. What always holds: a
segment that has a row which meets the conditions has one of each group, or lists its fingerprints incompletely.
"""

from __future__ import annotations

from collections.abc import Iterable

from lakerunner.model.condition import Condition, Equals, Present
from lakerunner.model.fingerprint import INCOMPLETE, VALUES, digest64
from lakerunner.model.signal import SCOPES, Attribute

_PREFIXES = {scope.map_column: scope.prefix for scope in SCOPES}
Group = frozenset[int]


def fingerprint_groups(signal: str, conditions: Iterable[Condition]) -> tuple[Group, ...]:
    """Without doubles, those of values first: they say more than that an attribute occurs. INCOMPLETE is in each."""
    groups = [_group(signal, condition) for condition in conditions]
    found = dict.fromkeys((is_value, group | {INCOMPLETE}) for is_value, group in groups if group)
    return tuple(group for _, group in sorted(found, key=lambda one: not one[0]))


def may_hold(fingerprints: Iterable[int], groups: Iterable[Group]) -> bool:
    """Whether a segment with these fingerprints is to be read."""
    there = frozenset(fingerprints)
    return all(not there.isdisjoint(group) for group in groups)


def _group(signal: str, condition: Condition) -> tuple[bool, Group]:
    """Whether it is of values, and the fingerprints; none where the condition says nothing about them."""
    match condition:
        case Present(attributes):
            return False, _presence(attributes)
        case Equals(str() as column, values):
            return True, frozenset(digest64(column, value) for value in values if column in VALUES[signal])
        case _ if isinstance(condition.column, Attribute):
            return False, _presence([condition.column])
    return False, frozenset()


def _presence(attributes: Iterable[Attribute]) -> Group:
    return frozenset(digest64(_PREFIXES[attribute.scope] + attribute.key) for attribute in attributes)
