"""What kills its worker is found by halving: a simulated box, with every outcome that the service would count."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from lakerunner.index.sources import Attempts, Identity
from lakerunner.model.source import SourceObject
from lakerunner.services.ingest import cut

LIMIT = 3


def objects(count: int) -> list[SourceObject]:
    return [SourceObject("lake", f"k{number:04}", "e", 1, 0) for number in range(count)]


def names(group: tuple[SourceObject, ...]) -> str:
    return " ".join(source.key[-1] for source in group)


def test_objects_without_a_history_are_one_job() -> None:
    found = cut(objects(8), {}, LIMIT)
    assert [names(group) for group in found.groups] == ["0 1 2 3 4 5 6 7"]
    assert found.given_up == ()


def test_halves_after_the_limit_and_alone_at_last() -> None:
    box = objects(5)
    of_all = {source.identity: Attempts(2, 5) for source in box}
    assert [names(group) for group in cut(box, of_all, LIMIT).groups] == ["0 1 2 3 4"]
    of_all = {source.identity: Attempts(3, 5) for source in box}
    assert [names(group) for group in cut(box, of_all, LIMIT).groups] == ["0 1 2", "3 4"]
    alone = {box[0].identity: Attempts(2, 1), box[1].identity: Attempts(3, 1), box[2].identity: Attempts(3, 2)}
    found = cut(box, alone, LIMIT)
    assert [names(group) for group in found.groups] == ["0", "2", "3 4"]
    assert names(found.given_up) == "1"


def test_a_count_that_was_given_back_does_not_put_it_into_larger_company() -> None:
    box = objects(8)
    halved = {source.identity: Attempts(0, 4) for source in box}
    assert [names(group) for group in cut(box, halved, LIMIT).groups] == ["0 1 2 3", "4 5 6 7"]


@given(st.integers(1, 60), st.sets(st.integers(0, 59), max_size=4), st.integers(1, 4))
def test_exactly_the_killers_are_given_up_and_soon(count: int, killers: set[int], limit: int) -> None:
    left = {source.identity: source for source in objects(count)}
    deadly = {source.identity for number, source in enumerate(objects(count)) if number in killers}
    history: dict[Identity, Attempts] = {}
    given_up: set[Identity] = set()
    crashes = 0
    while left:
        found = cut(list(left.values()), history, limit)
        for source in found.given_up:
            given_up.add(source.identity)
            del left[source.identity]
        for group in found.groups:
            identities = [source.identity for source in group]
            for identity in identities:
                before = history.get(identity, Attempts(0, 0))
                same = before.count if before.company == len(group) else 0
                history[identity] = Attempts(same + 1, len(group))
            if deadly.isdisjoint(identities):
                for identity in identities:
                    del left[identity]
            else:
                crashes += 1
    assert given_up == deadly
    levels = (count - 1).bit_length() + 1
    assert crashes <= len(deadly) * limit * levels
