"""Which object holds a pushed request."""

from __future__ import annotations

import pytest

from index.index_values import ACME, OTHER, at_once, count
from lakerunner.index.index import Index
from lakerunner.model.errors import LakerunnerError

DAY = 24 * 3600.0
A, B, C = b"a" * 16, b"b" * 16, b"c" * 16


def test_a_request_belongs_to_the_object_that_claimed_it_first(index: Index) -> None:
    first = index.pushes.claim(ACME.id, "logs", "k1", [A, B])
    assert (first.mine, first.others) == ({A, B}, {})
    second = index.pushes.claim(ACME.id, "logs", "k2", [C, B])
    assert second.mine == {C}
    (digest, found) = next(iter(second.others.items()))
    assert (digest, found.id, found.key, found.stored) == (B, first.object, "k1", False)
    assert 0 <= found.seconds < 60
    index.pushes.stored(first.object, forget_seconds=DAY)
    third = index.pushes.claim(ACME.id, "logs", "k3", [A, B, C])
    assert {digest: other.stored for digest, other in third.others.items()} == {A: True, B: True, C: False}


def test_organizations_and_signals_do_not_see_each_other(index: Index) -> None:
    index.pushes.claim(ACME.id, "logs", "k1", [A])
    assert index.pushes.claim(OTHER.id, "logs", "k2", [A]).mine == {A}
    assert index.pushes.claim(ACME.id, "traces", "k3", [A]).mine == {A}


def test_of_many_claims_at_once_each_request_goes_to_one(index: Index) -> None:
    digests = [bytes([number]) * 16 for number in range(50)]
    orders = [digests, digests[::-1], digests[::3], digests[::-2]]
    claims = at_once([lambda o=order, n=n: index.pushes.claim(ACME.id, "logs", f"k{n}", o)  # type: ignore[misc]
                      for n, order in enumerate(orders)])  # fmt: skip
    mine = [digest for claim in claims for digest in claim.mine]  # type: ignore[union-attr]
    assert sorted(mine) == digests


def test_only_what_still_belongs_to_an_object_is_taken_over(index: Index) -> None:
    old = index.pushes.claim(ACME.id, "logs", "k1", [A, B]).object
    heir = index.pushes.claim(ACME.id, "logs", "k2", [C]).object
    other = index.pushes.claim(ACME.id, "logs", "k3", []).object
    assert index.pushes.take_over(ACME.id, "logs", [A], holder=old, heir=heir) == {A}
    assert index.pushes.take_over(ACME.id, "logs", [A, B, C], holder=old, heir=other) == {B}
    assert index.pushes.take_over(OTHER.id, "logs", [A], holder=heir, heir=other) == frozenset()
    found = index.pushes.claim(ACME.id, "logs", "k4", [A, B, C]).others
    assert {digest: item.key for digest, item in found.items()} == {A: "k2", B: "k3", C: "k2"}


def test_what_came_long_ago_is_forgotten_a_few_objects_at_a_time(index: Index) -> None:
    digests = [bytes([number]) * 16 for number in range(6)]
    objects = [index.pushes.claim(ACME.id, "logs", f"k{n}", [digest]).object for n, digest in enumerate(digests)]
    with index.pool.connection() as connection:
        connection.execute(
            "UPDATE lrdb.push_objects SET pushed_at = now() - interval '25 hours' WHERE id < %s", objects[5:]
        )
    index.pushes.stored(objects[5], forget_seconds=DAY)
    assert index.pushes.claim(ACME.id, "logs", "k", digests).mine == set(digests[:4])
    index.pushes.stored(objects[5], forget_seconds=DAY)
    assert count(index, "SELECT count(*) FROM lrdb.push_objects WHERE pushed_at < now() - interval '24 hours'") == 0
    assert index.pushes.claim(ACME.id, "logs", "k", digests[5:]).mine == frozenset()


def test_a_request_cannot_belong_to_an_object_that_is_not_there(index: Index) -> None:
    index.pushes.claim(ACME.id, "logs", "k1", [A])
    with pytest.raises(LakerunnerError):
        index.pushes.take_over(ACME.id, "logs", [A], holder=1, heir=999)
