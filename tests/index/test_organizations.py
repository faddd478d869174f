from __future__ import annotations

from uuid import uuid4

import pytest

from index.index_values import ACME, OTHER, at_once
from lakerunner.index.index import Index
from lakerunner.model.errors import Conflict, NotFound, UserError
from lakerunner.model.organization import DEFAULT_ORGANIZATION, Organization, Share
from lakerunner.model.streams.stream_rules import DEFAULT_RULES, Action, AttributeRule, StreamRules


def test_organizations_are_found_by_id_and_by_name(index: Index) -> None:
    assert index.organizations.all() == [ACME, OTHER]
    assert index.organizations.find("acme") == ACME
    assert index.organizations.find(str(OTHER.id)) == OTHER
    assert index.organizations.find(str(OTHER.id).upper()) == OTHER
    for stranger in ("nobody", "ACME", str(uuid4()), OTHER.id.hex, f"{{{OTHER.id}}}", ""):
        assert index.organizations.find(stranger) is None


def test_a_name_that_looks_like_an_id_does_not_hide_the_id(index: Index) -> None:
    impostor = Organization(uuid4(), str(ACME.id))
    index.organizations.create(impostor)
    assert index.organizations.find(str(ACME.id)) == ACME
    assert index.organizations.find(str(impostor.id)) == impostor


def test_an_id_or_a_name_is_taken_once(index: Index) -> None:
    for taken in (Organization(ACME.id, "new"), Organization(uuid4(), "acme"), ACME):
        with pytest.raises(Conflict, match="exists already"):
            index.organizations.create(taken)
    results = at_once([lambda: index.organizations.create(DEFAULT_ORGANIZATION)] * 4)
    assert sum(result is None for result in results) == 1
    assert index.organizations.all() == [ACME, DEFAULT_ORGANIZATION, OTHER]


def test_limits_are_of_one_organization_and_can_be_given_back(index: Index) -> None:
    assert index.organizations.share(ACME.id) == Share()
    index.organizations.limit(ACME.id, Share(0.5, 3))
    assert index.organizations.share(ACME.id) == Share(0.5, 3)
    assert index.organizations.share(OTHER.id) == Share()
    index.organizations.limit(ACME.id, Share())
    assert index.organizations.share(ACME.id) == Share()
    assert index.organizations.share(uuid4()) == Share()
    with pytest.raises(NotFound, match=r"organization .* not found"):
        index.organizations.limit(uuid4(), Share(1.0))


@pytest.mark.parametrize("wrong", [(0.0, None), (-1.0, None), (float("inf"), None), (None, 0), (None, 1 << 31)])
def test_what_is_no_limit(wrong: tuple[float | None, int | None]) -> None:
    with pytest.raises(UserError, match="must be"):
        Share(*wrong)


def test_stream_rules_are_of_one_organization_and_can_be_given_back(index: Index) -> None:
    rules = StreamRules(
        resource=(AttributeRule(Action.DROP, regex="secret\\..*"),), service_labels=(), detect_levels=False
    )
    assert index.organizations.stream_rules(ACME.id) == DEFAULT_RULES
    index.organizations.set_stream_rules(ACME.id, rules)
    assert index.organizations.stream_rules(ACME.id) == rules
    assert index.organizations.stream_rules(OTHER.id) == DEFAULT_RULES
    assert index.organizations.stream_rules(uuid4()) == DEFAULT_RULES
    index.organizations.set_stream_rules(ACME.id, None)
    assert index.organizations.stream_rules(ACME.id) == DEFAULT_RULES
    with pytest.raises(NotFound, match=r"organization .* not found"):
        index.organizations.set_stream_rules(uuid4(), rules)
