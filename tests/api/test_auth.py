"""A key names one organization; nothing else does."""

from __future__ import annotations

import base64
from uuid import UUID

import pytest

from lakerunner.api.auth import Authenticator
from lakerunner.model.errors import NotAuthenticated
from lakerunner.model.organization import DEFAULT_ORGANIZATION, Organization

ACME = Organization(UUID(int=7), "acme")
KEYS = {"lrk_acme": ACME}
CLOSED = Authenticator(KEYS.get, None)
OPEN = Authenticator(KEYS.get, DEFAULT_ORGANIZATION)


@pytest.mark.parametrize(
    "headers",
    [
        {"authorization": "Bearer lrk_acme"},
        {"authorization": "bearer  lrk_acme "},
        {"authorization": "Basic " + base64.b64encode(b"anyone:lrk_acme").decode()},
        {"api-key": "lrk_acme"},
        {"x-cardinalhq-api-key": "lrk_acme"},
    ],
)
def test_a_key_is_found_in_the_headers_clients_use(headers: dict[str, str]) -> None:
    assert CLOSED.organization(headers) == ACME
    assert OPEN.organization(headers) == ACME


@pytest.mark.parametrize(
    "headers", [{"authorization": "Bearer wrong"}, {"api-key": "wrong"}, {"authorization": "Basic %%%"}]
)
def test_a_wrong_key_is_refused_even_where_none_is_needed(headers: dict[str, str]) -> None:
    with pytest.raises(NotAuthenticated):
        OPEN.organization(headers)


def test_without_a_key() -> None:
    assert OPEN.organization({}) == DEFAULT_ORGANIZATION
    with pytest.raises(NotAuthenticated, match="an API key is needed"):
        CLOSED.organization({})
