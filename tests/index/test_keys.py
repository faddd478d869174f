from __future__ import annotations

import re
from uuid import uuid4

import pytest
from index_values import ACME, OTHER, at_once

from lakerunner.index.index import Index
from lakerunner.model.errors import Conflict, NotFound, UserError
from lakerunner.model.organization import DEFAULT_ORGANIZATION, Organization


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
        with pytest.raises(Conflict, match="is there already"):
            index.organizations.create(taken)
    results = at_once([lambda: index.organizations.create(DEFAULT_ORGANIZATION)] * 4)
    assert sum(result is None for result in results) == 1
    assert index.organizations.all() == [ACME, DEFAULT_ORGANIZATION, OTHER]


def test_a_key_stands_for_its_organization_until_revoked(index: Index) -> None:
    ours, theirs = index.keys.create(ACME.id, "grafana"), index.keys.create(OTHER.id, "grafana")
    assert re.fullmatch(r"lrk_[A-Za-z0-9_-]{43}", ours)
    assert index.keys.organization_of(ours) == ACME
    assert index.keys.organization_of(theirs) == OTHER
    index.keys.revoke(ACME.id, "grafana")
    index.keys.revoke(ACME.id, "grafana")
    assert index.keys.organization_of(ours) is None
    assert index.keys.organization_of(theirs) == OTHER


def test_unknown_secrets_stand_for_nobody(index: Index) -> None:
    secret = index.keys.create(ACME.id, "a")
    for wrong in ("", "lrk_", secret[:-1], secret + "x", secret.upper(), "\0", "\udcff"):
        assert index.keys.organization_of(wrong) is None


def test_no_table_holds_the_secret(index: Index) -> None:
    secret = index.keys.create(ACME.id, "a")
    with index.pool.connection() as connection:
        rows = connection.execute("SELECT k::text, encode(k.hash, 'escape'), k.hash FROM lrdb.api_keys AS k").fetchall()
    assert len(rows) == 1
    text = repr(rows)
    assert secret not in text
    assert secret.removeprefix("lrk_") not in text
    assert secret.encode().hex() not in text
    assert len(rows[0][2]) == 32


def test_keys_are_listed_without_their_secret_and_per_organization(index: Index) -> None:
    secret = index.keys.create(ACME.id, "first")
    index.keys.create(ACME.id, "second")
    index.keys.create(OTHER.id, "theirs")
    index.keys.revoke(ACME.id, "first")
    first, second = index.keys.list(ACME.id)
    assert (first.organization, first.name, second.name) == (ACME.id, "first", "second")
    assert first.revoked_at is not None
    assert first.revoked_at >= first.created_at
    assert second.revoked_at is None
    assert secret not in repr((first, second))
    assert [key.name for key in index.keys.list(OTHER.id)] == ["theirs"]


def test_what_cannot_be_made_or_revoked(index: Index) -> None:
    index.keys.create(ACME.id, "a")
    with pytest.raises(Conflict, match="named a"):
        index.keys.create(ACME.id, "a")
    with pytest.raises(NotFound, match="organization"):
        index.keys.create(uuid4(), "a")
    with pytest.raises(UserError, match="key name"):
        index.keys.create(ACME.id, "no spaces")
    with pytest.raises(NotFound, match="no key named b"):
        index.keys.revoke(ACME.id, "b")
    with pytest.raises(NotFound, match="no key named a"):
        index.keys.revoke(OTHER.id, "a")
