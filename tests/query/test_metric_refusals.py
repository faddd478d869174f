"""What workers cannot make of windows is not tried again for a while, and is right whatever is remembered."""

from __future__ import annotations

from pathlib import Path
from uuid import UUID

import pytest

from lakerunner.model.tier import RAW, TIERS
from lakerunner.model.time import SECOND_NS
from lakerunner.query.leaf_run import MOST, SECONDS, RefusalKey, Refusals
from lakerunner.series.values import Steps
from query.metric_lake import NS
from query.sample_lake import OWN
from query.tiered_lake import MINUTE, NUMBERS, STEPS, T0, Tiered, ask, delta, same, series, small

FIVE = 5 * MINUTE
RATE = RefusalKey(OWN, "rate(sent[5m])", FIVE)
NOON_NS = 1_704_110_400 * SECOND_NS


@pytest.fixture
def made(tmp_path: Path) -> Tiered:
    return small(tmp_path / "lake", series("up", NUMBERS, False), delta("sent"), tiers=TIERS[:3])


def test_a_refusal_is_known_for_its_time_its_tier_and_its_organization() -> None:
    refusals = Refusals()
    refusals.add(RATE, (0, 100), "deltas", NOON_NS + 5)
    told = "deltas, as found at 2024-01-01 12:00:00 UTC"
    assert refusals.reason(RATE, (50, 150), NOON_NS + SECONDS * SECOND_NS) == told
    assert refusals.reason(RATE, (100, 150), NOON_NS) == ""  # at another time, left-open
    assert refusals.reason(RATE, (99, 150), NOON_NS) == told
    for other in (
        RefusalKey(UUID(int=1), RATE.fragment, FIVE),
        RefusalKey(OWN, RATE.fragment, MINUTE),
        RefusalKey(OWN, "rate(up[5m])", FIVE),
    ):
        assert refusals.reason(other, (0, 100), NOON_NS) == ""
    assert refusals.reason(RATE, (0, 100), NOON_NS + 5 + SECONDS * SECOND_NS) == ""
    assert refusals.reason(RATE, (0, 100), NOON_NS) == ""  # it is forgotten


def test_the_least_recently_used_goes_first() -> None:
    assert MOST == 1_000
    refusals = Refusals(most=2)
    first, second, third = (RefusalKey(OWN, name, FIVE) for name in "abc")
    refusals.add(first, (0, 1), "one", NOON_NS)
    refusals.add(second, (0, 1), "two", NOON_NS)
    assert refusals.reason(first, (0, 1), NOON_NS)
    refusals.add(third, (0, 1), "three", NOON_NS)
    assert [bool(refusals.reason(one, (0, 1), NOON_NS)) for one in (first, second, third)] == [True, False, True]


def test_the_second_time_raw_points_are_read_at_once(made: Tiered) -> None:
    first, answer = ask(made, "rate(sent[5m])", STEPS, raw=False)
    assert tuple(answer.reads[0].tiles) == (FIVE, RAW)
    assert answer.reads[0].reason == "some selected series have delta temporality"
    later = Steps(STEPS.start + FIVE, STEPS.end, FIVE)
    again, answer = ask(made, "rate(sent[5m])", later, raw=False)
    (read,) = answer.reads
    assert (read.tier, read.reason) == (
        RAW,
        "some selected series have delta temporality, as found at 2024-01-01 00:00:00 UTC",
    )
    assert read.tiles == {RAW: ((T0 + 10 * MINUTE, T0 + 20 * MINUTE),)}
    same(again, ask(made, "rate(sent[5m])", later, raw=True)[0], exact=True)
    assert again == {labels: points[1:] for labels, points in first.items()}
    assert answer.account.considered == answer.account.read == 1  # of windows none
    _, answer = ask(made, "max_over_time(up[5m])", STEPS, raw=False)
    assert tuple(answer.reads[0].tiles) == (FIVE,)


def test_where_raw_points_have_expired_the_windows_are_tried_again(tmp_path: Path) -> None:
    """They alone may have what was there."""
    made = small(tmp_path / "lake", series("up", NUMBERS, False), tiers=TIERS[:3])
    text = "max_over_time(up[5m])"
    before, _ = ask(made, text, STEPS, raw=True)
    refused = RefusalKey(OWN, text, FIVE)
    made.engine.engine.refusals.add(refused, (T0, T0 + 20 * MINUTE), "it was so once", T0 * NS)
    found, answer = ask(made, text, STEPS, raw=False)
    assert tuple(answer.reads[0].tiles) == (RAW,)
    same(found, before, exact=True)
    made.index.expire(RAW, (T0 + 20 * MINUTE) * NS + 1)
    found, answer = ask(made, text, STEPS, raw=False)
    assert (tuple(answer.reads[0].tiles), answer.notes) == ((FIVE,), ())
    same(found, before, exact=True)
