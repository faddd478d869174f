"""What has expired is warned of where it was to be read, and nowhere else."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from lakerunner.model.tier import RAW, TIERS
from lakerunner.query.read_lines import read_lines
from lakerunner.query.reads import to_json
from lakerunner.series.values import Steps
from query.metric_lake import NS
from query.tiered_lake import DAY, HOUR, MINUTE, T0, Tiered, ask, delta, same, series, small

EVERY_MINUTE: list[tuple[int, float | None]] = [(T0 + n * MINUTE, float(n)) for n in range(1, 241)]
LAST = T0 + 4 * HOUR
HOURLY = Steps(T0 + HOUR, LAST, HOUR)
UNTIL = "2024-01-01 04:00:00 UTC"
UP = f"raw points up to {UNTIL} have expired by retention and are not in this answer; "
UP += "rollups of them are left, but cannot answer it"


def made_of(directory: Path, *fills: Any) -> Tiered:
    """Four hours, rolled up to hours."""
    return small(directory, *(fills or (series("up", EVERY_MINUTE, False),)), tiers=TIERS[:4])


def warnings(made: Tiered, text: str, steps: Steps, **how: Any) -> list[str]:
    _, answer = ask(made, text, steps, raw=how.pop("raw", False), **how)
    return [note.message for note in answer.notes if note.level == "warning"]


@pytest.fixture
def without_raw(tmp_path: Path) -> Tiered:
    made = made_of(tmp_path / "lake")
    made.index.expire(RAW, LAST * NS + 1)
    return made


def test_what_a_tier_serves_is_whole_and_has_no_warning(tmp_path: Path) -> None:
    made = made_of(tmp_path / "lake")
    before, _ = ask(made, "max_over_time(up[1h])", HOURLY, raw=True)
    made.index.expire(RAW, LAST * NS + 1)
    after, answer = ask(made, "max_over_time(up[1h])", HOURLY, raw=False)
    same(after, before, exact=True)
    assert answer.notes == ()
    assert after == {"{}": [(T0 + n * HOUR, 60.0 * n) for n in range(1, 5)]}


@pytest.mark.parametrize(
    ("text", "steps", "why", "how"),
    [
        (
            "max_over_time(up[7m5s])",
            HOURLY,
            "10 s rollups need a range that is a multiple of 10 s",
            "align start and step to 10 s and take a range that is a multiple of it",
        ),
        (
            "up",
            Steps(T0 + HOUR, LAST, 7_000),
            "10 s rollups need a step that is a multiple of 10 s",
            "align start and step to 10 s",
        ),
        (
            "up offset 11s",
            Steps(LAST, LAST),
            "10 s rollups need a time minus offset that is a multiple of 10 s",
            "align the time and offset to 10 s",
        ),
        (
            "up @ 1704070801.500",
            HOURLY,
            "10 s rollups need an @ time that is a multiple of 10 s",
            "align the time of @ to 10 s",
        ),
        ("irate(up[1h])", HOURLY, "irate needs every sample", ""),
        ("absent(up)", HOURLY, "this part of the query needs every sample", ""),
    ],
)
def test_it_says_up_to_when_why_and_what_to_do(
    without_raw: Tiered, text: str, steps: Steps, why: str, how: str
) -> None:
    fragment = '{__name__="up"}' if text == "absent(up)" else text
    assert warnings(without_raw, text, steps) == [f"{fragment}: {UP}: {why}" + (f"; {how}" if how else "")]


def test_raw_points_that_are_asked_for(without_raw: Tiered) -> None:
    assert warnings(without_raw, "max_over_time(up[1h])", HOURLY, raw=True) == [
        f"max_over_time(up[1h]): {UP}: the request has tier=raw"
    ]


def test_what_windows_cannot_give(tmp_path: Path) -> None:
    made = small(tmp_path / "lake", delta("sent"), tiers=TIERS[:3])
    made.index.expire(RAW, (T0 + 20 * MINUTE) * NS)
    steps = Steps(T0 + 10 * MINUTE, T0 + 20 * MINUTE, 5 * MINUTE)
    (told,) = warnings(made, "rate(sent[5m])", steps)
    assert told == f"rate(sent[5m]): {UP.replace('04:00', '00:20')}: some selected series have delta temporality"


def test_the_tier_that_reaches_back_furthest_is_advised(without_raw: Tiered) -> None:
    for tier in TIERS[:2]:
        without_raw.index.expire(tier, (T0 + 2 * HOUR) * NS + 1)
        without_raw.index.expire(tier, LAST * NS + 1)
    (told,) = warnings(without_raw, "max_over_time(up[7m5s])", HOURLY)
    assert told.endswith("align start and step to 5 min and take a range that is a multiple of it")
    # The finer windows that would serve this have expired too.
    (told,) = warnings(without_raw, "max_over_time(up[7m])", Steps(T0 + HOUR, LAST, MINUTE))
    assert told == (
        f"max_over_time(up[7m]): {UP}: 5 min rollups need a range that is a "
        "multiple of 5 min; align start and step to 5 min and take a range that is a multiple of it"
    )


def test_when_nothing_is_left_it_says_no_more_than_that(without_raw: Tiered) -> None:
    for tier in TIERS[:4]:
        without_raw.index.expire(tier, LAST * NS + 1)
    everything = f"points up to {UNTIL} have expired by retention, and no rollups of them are left"
    assert warnings(without_raw, "max_over_time(up[7m5s])", HOURLY) == [f"max_over_time(up[7m5s]): {everything}"]
    served = f"max_over_time(up[1h]): {everything}"
    assert warnings(without_raw, "max_over_time(up[1h])", HOURLY) == [served]
    assert warnings(without_raw, "max_over_time(up[1h])", HOURLY, streamed=True) == [served]


def test_only_where_the_time_that_is_read_reaches_into_it(tmp_path: Path) -> None:
    made = made_of(tmp_path / "lake")
    made.index.expire(RAW, (T0 + 2 * HOUR) * NS)
    for text, start, count in [
        ("irate(up[1h])", T0 + 3 * HOUR - 1, 0),
        ("irate(up[1h])", T0 + 3 * HOUR - 2, 1),
        ("irate(up[5m] offset 55m)", T0 + 3 * HOUR, 0),
        ("irate(up[5m] offset 56m)", T0 + 3 * HOUR, 1),
        ("up", T0 + 3 * HOUR + 7, 0),
        ("up", T0 + 2 * HOUR + 1, 1),
    ]:
        assert len(warnings(made, text, Steps(start, start))) == count, (text, start)


def test_a_lake_that_is_younger_than_the_question_has_no_warning(tmp_path: Path) -> None:
    made = made_of(tmp_path / "lake")
    assert warnings(made, "irate(up[7m5s])", Steps(T0 - 30 * DAY, LAST, DAY)) == []


def test_each_fragment_is_told_once_however_many_groups_it_has(without_raw: Tiered) -> None:
    steps = Steps(T0 + HOUR, LAST, 1_000)
    streamed = warnings(without_raw, "up + max_over_time(up[7m5s])", steps, streamed=True)
    assert sorted(one.split(":")[0] for one in streamed) == ["max_over_time(up[7m5s])", "up"]
    assert streamed[0].endswith("align start and step to 10 s")


def test_what_came_late_and_is_not_rolled_up_yet(without_raw: Tiered) -> None:
    """Where raw points are read for it, those that have expired are missing."""
    lake = without_raw.index.lake
    without_raw.index.all += lake.add(series("up", [(T0 + 90 * MINUTE, 5.0)], False))
    (told,) = warnings(without_raw, "max_over_time(up[1h])", HOURLY)
    assert told == (
        f"max_over_time(up[1h]): {UP}: late samples there are not rolled up yet; ask again in a few minutes"
    )


def test_explain_shows_it(without_raw: Tiered) -> None:
    _, answer = ask(without_raw, "irate(up[1h])", HOURLY, raw=False)
    assert read_lines(to_json(answer.reads)) == [
        "irate(up[1h])",
        "  Read raw samples: irate needs every sample.",
        "  read raw samples after 2024-01-01 00:00:00 to 2024-01-01 04:00:00",
        f"  expired up to {UNTIL}",
    ]


def test_while_the_index_is_away_it_is_told_still(without_raw: Tiered) -> None:
    before = warnings(without_raw, "irate(up[1h])", HOURLY)
    without_raw.index.away = True
    assert warnings(without_raw, "irate(up[1h])", HOURLY) == before != []
