from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from uuid import uuid4

import pytest

from index.index_values import ACME, OTHER, at_once
from lakerunner.index import api_keys as keys_module
from lakerunner.index.api_keys import GRACE_MAX, KeyGrant, digest
from lakerunner.index.database import Database
from lakerunner.index.index import Index
from lakerunner.index.migrate import load_migrations, migrate
from lakerunner.model.errors import Conflict, NotFound, TooLarge, UserError
from lakerunner.model.organization import EVERY_ROLE, Caller, Role, Share

READ = frozenset({Role.READ})
DAY = timedelta(days=1)


def known(index: Index, secret: str) -> KeyGrant | None:
    return index.keys.find(digest(secret))


def test_a_key_stands_for_its_organization_until_revoked(index: Index) -> None:
    ours, theirs = index.keys.create(ACME.id, "grafana", READ), index.keys.create(OTHER.id, "grafana", EVERY_ROLE)
    assert re.fullmatch(r"lrk_[A-Za-z0-9_-]{43}", ours)
    assert known(index, ours) == KeyGrant(Caller(ACME, "grafana", READ))
    assert known(index, theirs) == KeyGrant(Caller(OTHER, "grafana", EVERY_ROLE))
    index.keys.revoke(ACME.id, "grafana")
    index.keys.revoke(ACME.id, "grafana")
    assert known(index, ours) is None
    assert known(index, theirs) == KeyGrant(Caller(OTHER, "grafana", EVERY_ROLE))


def test_a_caller_comes_with_the_limits_of_the_organization(index: Index) -> None:
    secret = index.keys.create(ACME.id, "a", READ)
    index.organizations.limit(ACME.id, Share(2.5, 4))
    index.organizations.limit(OTHER.id, Share(9.0, 9))
    assert known(index, secret) == KeyGrant(Caller(ACME, "a", READ, Share(2.5, 4)))


def test_unknown_secrets_stand_for_nobody(index: Index) -> None:
    secret = index.keys.create(ACME.id, "a", READ)
    for wrong in ("", "lrk_", secret[:-1], secret + "x", secret.upper(), "\0", "\udcff"):
        assert known(index, wrong) is None
    assert index.keys.find(b"") is None


def test_no_table_holds_a_secret(index: Index) -> None:
    secrets = [index.keys.create(ACME.id, "a", READ), index.keys.rotate(ACME.id, "a", DAY)]
    with index.pool.connection() as connection:
        rows = connection.execute("SELECT k::text, k.hash, k.previous_hash FROM lrdb.api_keys AS k").fetchall()
    assert len(rows) == 1
    text = repr(rows)
    for secret in secrets:
        assert secret not in text
        assert secret.removeprefix("lrk_") not in text
        assert secret.encode().hex() not in text
    assert rows[0][1:] == (digest(secrets[1]), digest(secrets[0]))


def test_an_old_secret_lives_for_the_grace_and_the_one_before_it_not_at_all(index: Index) -> None:
    first = index.keys.create(ACME.id, "a", READ)
    second = index.keys.rotate(ACME.id, "a", DAY)
    caller = Caller(ACME, "a", READ)
    assert known(index, second) == KeyGrant(caller)
    old = known(index, first)
    assert old is not None
    assert old.caller == caller
    assert old.seconds is not None
    assert DAY.total_seconds() - 300 < old.seconds <= DAY.total_seconds()
    third = index.keys.rotate(ACME.id, "a", DAY)
    assert known(index, first) is None
    assert known(index, second) is not None
    assert known(index, third) == KeyGrant(caller)
    fourth = index.keys.rotate(ACME.id, "a", timedelta(0))
    assert [known(index, secret) for secret in (first, second, third)] == [None] * 3
    assert known(index, fourth) == KeyGrant(caller)


def test_a_grace_ends(index: Index) -> None:
    first = index.keys.create(ACME.id, "a", READ)
    second = index.keys.rotate(ACME.id, "a", DAY)
    assert known(index, first) is not None
    with index.pool.connection() as connection:
        connection.execute("UPDATE lrdb.api_keys SET previous_until = now() - interval '1 second'")
    assert known(index, first) is None
    assert known(index, second) is not None


def test_revoking_ends_both_secrets_and_what_is_revoked_stays_so(index: Index) -> None:
    secrets = [index.keys.create(ACME.id, "a", READ), index.keys.rotate(ACME.id, "a", DAY)]
    index.keys.revoke(ACME.id, "a")
    assert [known(index, secret) for secret in secrets] == [None, None]
    with pytest.raises(NotFound, match="cannot rotate key 'a'"):
        index.keys.rotate(ACME.id, "a", DAY)


def test_of_rotations_at_once_the_last_two_secrets_are_good(index: Index) -> None:
    first = index.keys.create(ACME.id, "a", READ)
    made = at_once([lambda: index.keys.rotate(ACME.id, "a", DAY)] * 4)
    secrets = [first, *(secret for secret in made if isinstance(secret, str))]
    assert len(secrets) == 5
    assert sum(known(index, secret) is not None for secret in secrets) == 2


def test_keys_are_listed_without_their_secret_and_per_organization(index: Index) -> None:
    secret = index.keys.create(ACME.id, "first", READ)
    index.keys.create(ACME.id, "second", EVERY_ROLE)
    index.keys.create(OTHER.id, "theirs", READ)
    index.keys.rotate(ACME.id, "second", DAY)
    index.keys.revoke(ACME.id, "first")
    first, second = index.keys.list(ACME.id)
    assert (first.organization, first.name, first.roles) == (ACME.id, "first", READ)
    assert (first.rotated_at, first.previous_until) == (None, None)
    assert first.revoked_at is not None
    assert first.revoked_at >= first.created_at
    assert (second.name, second.roles, second.revoked_at) == ("second", EVERY_ROLE, None)
    assert second.rotated_at is not None
    assert second.previous_until == second.rotated_at + DAY > datetime.now(UTC)
    assert secret not in repr((first, second))
    assert [key.name for key in index.keys.list(OTHER.id)] == ["theirs"]


def test_what_cannot_be_made_rotated_or_revoked(index: Index) -> None:
    index.keys.create(ACME.id, "a", READ)
    with pytest.raises(Conflict, match="named a"):
        index.keys.create(ACME.id, "a", READ)
    with pytest.raises(NotFound, match="organization"):
        index.keys.create(uuid4(), "a", READ)
    with pytest.raises(UserError, match="key name"):
        index.keys.create(ACME.id, "no spaces", READ)
    for grace in (timedelta(seconds=-1), GRACE_MAX + timedelta(seconds=1)):
        with pytest.raises(UserError, match="grace must be between 0 and 90 days"):
            index.keys.rotate(ACME.id, "a", grace)
    for owner, name in ((ACME, "b"), (OTHER, "a")):
        with pytest.raises(NotFound, match=f"key '{name}' not found"):
            index.keys.revoke(owner.id, name)
        with pytest.raises(NotFound, match=f"cannot rotate key '{name}'"):
            index.keys.rotate(owner.id, name, DAY)


def test_one_key_more_than_an_organization_may_have(index: Index, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keys_module, "KEYS_MAX", 2)
    index.keys.create(ACME.id, "a", READ)
    index.keys.create(ACME.id, "b", READ)
    index.keys.revoke(ACME.id, "a")
    with pytest.raises(TooLarge, match="2 keys, including revoked ones"):
        index.keys.create(ACME.id, "c", READ)
    index.keys.create(OTHER.id, "c", READ)


def test_keys_made_before_roles_can_still_ask_and_push(database_url: str) -> None:
    migrations = load_migrations()
    roles = next(place for place, migration in enumerate(migrations) if migration.name.endswith("_roles"))
    database = Database.open(database_url, 2)
    migrate(database, migrations[:roles])
    with database.pool.connection() as connection:
        connection.execute("INSERT INTO lrdb.organizations (id, name) VALUES (%s, 'acme')", (ACME.id,))
        values = (ACME.id, digest("lrk_old"))
        connection.execute("INSERT INTO lrdb.api_keys (organization, name, hash) VALUES (%s, 'old', %s)", values)
    migrate(database, migrations)
    database.close()
    index = Index.open(database_url)
    assert known(index, "lrk_old") == KeyGrant(Caller(ACME, "old", frozenset({Role.READ, Role.WRITE})))
    index.close()
