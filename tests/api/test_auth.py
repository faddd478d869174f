"""A key names one organization and what may be done there; nothing else does."""

from __future__ import annotations

import base64
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakerunner.api.auth import Authenticator
from lakerunner.model.errors import NotAllowed, NotAuthenticated, UserError
from lakerunner.model.organization import (
    DEFAULT_ORGANIZATION,
    EVERY_ROLE,
    Caller,
    Organization,
    Role,
    Roles,
    Share,
    parse_roles,
)

ACME = Caller(Organization(UUID(int=7), "acme"), "grafana", frozenset({Role.READ}))
KEYS = {"lrk_acme": ACME}
CLOSED = Authenticator(KEYS.get, None)
HERE = {"host": "localhost:7080"}
OPEN = Authenticator(KEYS.get, DEFAULT_ORGANIZATION)


def basic(secret: str) -> str:
    return "Basic " + base64.b64encode(f"anyone:{secret}".encode()).decode()


@pytest.mark.parametrize(
    "headers",
    [
        {"authorization": "Bearer lrk_acme"},
        {"authorization": "bearer  lrk_acme "},
        {"authorization": basic("lrk_acme")},
        {"api-key": "lrk_acme"},
        {"x-api-key": "lrk_acme"},
        {"x-cardinalhq-api-key": "lrk_acme"},
    ],
)
def test_a_key_is_found_in_the_headers_clients_use(headers: dict[str, str]) -> None:
    assert CLOSED.caller(headers, Role.READ) == ACME
    assert OPEN.caller(headers, Role.READ) == ACME
    for authenticator in (OPEN, CLOSED):
        with pytest.raises(NotAllowed):
            authenticator.caller(headers, Role.WRITE)


@pytest.mark.parametrize(
    "headers", [{"authorization": "Bearer wrong"}, {"api-key": "wrong"}, {"authorization": "Basic %%%"}]
)
def test_a_wrong_key_is_refused_even_where_none_is_needed(headers: dict[str, str]) -> None:
    with pytest.raises(NotAuthenticated):
        OPEN.caller(headers, Role.READ)


def test_without_a_key() -> None:
    for role in Role:
        assert OPEN.caller(HERE, role) == Caller(DEFAULT_ORGANIZATION, None, EVERY_ROLE)
        with pytest.raises(NotAuthenticated, match="API key required"):
            CLOSED.caller({}, role)
    limited = Authenticator(KEYS.get, DEFAULT_ORGANIZATION, lambda: Share(1.0, 2))
    assert limited.caller(HERE, Role.READ).share == Share(1.0, 2)


def test_a_missing_role_is_named_with_the_key_and_without_its_secret() -> None:
    with pytest.raises(NotAllowed) as refused:
        CLOSED.caller({"api-key": "lrk_acme"}, Role.ADMIN)
    assert str(refused.value).startswith("this needs role admin, key grafana has read:")
    assert "lrk_" not in str(refused.value)


@pytest.mark.parametrize("names", [[], ["root"], ["read", "Read"], ["read", 7], [["read"]]])
def test_what_is_no_set_of_roles(names: list[str]) -> None:
    with pytest.raises(UserError, match="role"):
        parse_roles(names)


NAMES = st.integers(10**7, 10**8 - 1).map("n{}".format)  # nothing that could stand in an id
ROLES: st.SearchStrategy[Roles] = st.frozensets(st.sampled_from(Role), min_size=1)


@st.composite
def lakes(draw: st.DrawFn) -> dict[str, Caller]:
    """Organizations with keys of any roles, by secret. All names differ, so that one in a message is no accident."""
    names = draw(st.lists(NAMES, min_size=4, max_size=16, unique=True))
    organizations = [Organization(draw(st.uuids(version=4)), name) for name in names[: len(names) // 4]]
    owners = st.sampled_from(organizations)
    return {f"lrk_{name[::-1]}": Caller(draw(owners), name, draw(ROLES)) for name in names[len(organizations) :]}


HEADERS = (
    lambda secret: {"authorization": f"Bearer {secret}"},
    lambda secret: {"authorization": basic(secret)},
    lambda secret: {"api-key": secret},
)


@given(lakes(), st.sampled_from(Role), st.sampled_from(HEADERS), st.booleans())
def test_let_in_with_the_role_only_and_always_as_ones_own(lake, role, headers, keyless) -> None:  # type: ignore[no-untyped-def]
    authenticator = Authenticator(lake.get, DEFAULT_ORGANIZATION if keyless else None)
    for secret, caller in lake.items():
        if role in caller.roles or Role.ADMIN in caller.roles:
            assert authenticator.caller(headers(secret), role) == caller
            continue
        with pytest.raises(NotAllowed) as refused:
            authenticator.caller(headers(secret), role)
        text = str(refused.value)
        assert caller.key in text
        assert role.value in text
        for other_secret, other in lake.items():
            assert other_secret not in text
            if other.organization != caller.organization:
                assert not any(
                    word in text for word in (other.key, other.organization.name, str(other.organization.id))
                )


@given(lakes(), st.text(st.characters(codec="ascii", categories=("L", "N")), min_size=1), st.sampled_from(HEADERS))
def test_a_secret_that_is_none_of_theirs_says_nothing(lake, guess, headers) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(NotAuthenticated) as refused:
        Authenticator(lake.get, DEFAULT_ORGANIZATION).caller(headers(guess), Role.READ)
    assert str(refused.value) == "API key is unknown or revoked"
