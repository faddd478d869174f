"""Every query that tiers serve gives what raw points give: random series, random windows that are there or not, random
queries. What cannot be made of windows is made of samples, and said."""

from __future__ import annotations

import math
import os
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lakerunner.model.errors import Unavailable, UserError
from lakerunner.model.tier import RAW, TIERS, window_end
from lakerunner.plan.plan import Leaf
from lakerunner.promql.operators import FetchSamples, Selection
from lakerunner.query.metrics.segment_file import SegmentFile
from lakerunner.query.read_lines import read_lines
from lakerunner.query.reads import Read, to_json
from lakerunner.query.unit import Unit
from lakerunner.series.evaluation.pieces import Piece, Untiered, from_batch, to_batch
from lakerunner.series.values import Steps
from query.metric_lake import NS, MetricLake, gauge, metric
from query.rollup_oracle import RollupLake, points_of, rolled_up
from query.sample_lake import OWN
from query.tiered_lake import HOUR, MINUTE, NUMBERS, STEPS, T0, Tiered, ask, delta, roll_up, same, series, small, tiered

EXACT = ["delta", "resets", "changes", "count_over_time", "present_over_time", "min_over_time", "max_over_time"]
EXACT += ["first_over_time", "last_over_time"]
SUMMED = ["rate", "increase", "sum_over_time", "avg_over_time"]
SKETCHED = ["{0}", "{0}", "sum by (n) ({0})", "sum({0})", "histogram_quantile(0.9, {0})", "histogram_count(avg({0}))"]


def random_points(draw: np.random.Generator, kind: str) -> list[tuple[int, float | None]]:
    """(ms, value); None is a stale marker."""
    times: list[int] = []
    at = T0 - 20 * MINUTE + int(draw.integers(0, 15_000))
    every = int(draw.choice([5_000, 15_000, 60_000]))
    while at < T0 + 3 * HOUR:
        times.append(at)
        match draw.integers(0, 60):
            case 0:
                at += int(draw.integers(MINUTE, 40 * MINUTE))  # a gap
            case 1:
                at += int(draw.integers(1, 50))  # a burst
            case 2:
                at = window_end(at + 1, int(draw.choice(TIERS[:3])))  # at the very end of a window
            case _:
                at += every + int(draw.integers(-500, 500))
    count = len(times)
    if kind == "whole counter":
        values = np.cumsum(draw.integers(0, 9, count)).astype(float)
    elif kind == "counter":
        values = np.cumsum(draw.random(count))
    else:
        values = np.round(draw.normal(0, 100, count), int(draw.integers(0, 4)))
    for at_reset in draw.choice(count, 4):
        if "counter" in kind:
            values[at_reset:] -= values[at_reset] * (1.0 if kind == "whole counter" else draw.random())
    found: list[tuple[int, float | None]] = list(zip(times, values.tolist(), strict=True))
    if kind == "odd gauge":
        for place in draw.choice(count, 12):
            odd = [math.nan, math.inf, -math.inf, None, None, 0.0, -0.0][draw.integers(0, 7)]
            found[place] = times[place], odd
    elif draw.integers(0, 2):
        for place in draw.choice(count, 5):
            found[place] = times[place], None
    return found


def random_lake(directory: Path, seed: int, add_rollups: Any = None) -> Tiered:
    """Raw segments that overlap, some of them rolled up; windows in segments that overlap, some of them rolled up; some
    windows twice, the first time with less in them."""
    draw = np.random.default_rng(seed)
    lake = MetricLake(directory)
    cuts = [-math.inf, *(T0 + int(one) for one in np.sort(draw.integers(0, 3 * HOUR, 5))), math.inf]
    every = [
        ("requests", random_points(draw, kind), "counter" in kind, {"n": str(n)})
        for n, kind in enumerate(["whole counter", "counter", "odd gauge", "gauge", "whole counter"])
    ]
    for low, high in pairwise(cuts):
        shares = np.array([draw.random() * 0.3 for _ in every])
        late: list[Any] = []
        fills: list[Any] = []
        for (name, points, counter, labels), share in zip(every, shares, strict=True):
            own = [point for point in points if low < point[0] <= high]
            behind = draw.random(len(own)) < (share if draw.integers(0, 2) else 0)
            for into, chosen in ((fills, ~behind), (late, behind)):
                some = [point for point, is_own in zip(own, chosen, strict=True) if is_own]
                if some:
                    into.append(series(name, some, counter, **labels))
        if fills:
            lake.add(*fills)
        if late:
            lake.add(*late)
    made = tiered(lake, shard_rows=int(draw.choice([300, 4_000_000])))
    (add_rollups or add_tiers)(made.index, draw)
    return made


def add_tiers(index: RollupLake, draw: np.random.Generator) -> None:
    raw = [one for one in index.all if one.frequency_ms == RAW]
    taken = [one for one in raw if draw.random() < 0.75]
    index.roll(one.id for one in taken)
    if not taken:
        return
    points = points_of(index.lake, taken)
    inside = {(source, time) for source, of in points.of.items() for time in of}
    for tier in TIERS:

        def wanted(source: Any, time: int, inside: Any = inside) -> bool:
            return (source, time) in inside

        rows = rolled_up(points, tier, wanted)
        if not rows:
            return
        least, most = (pick(end for _, end in rows) for pick in (min, max))
        cuts = np.sort(draw.integers(least, most + 1, 3)).tolist() if draw.integers(0, 4) else []
        rolled = []
        for low, high in zip([-math.inf, *cuts], [*cuts, math.inf], strict=True):
            own = {key: row for key, row in rows.items() if low < key[1] <= high}
            again = {
                key: dict.fromkeys(row, None) | {"chq_rollup_count": 0}
                for key, row in own.items()
                if draw.random() < 0.1
            }
            if again:  # what late data has made wrong
                rolled += [one.id for one in index.add(tier, points, again)]
            if own:
                made = index.add(tier, points, own)
                if draw.random() < 0.8:
                    rolled += [one.id for one in made]
                else:
                    inside -= {(source, time) for source, time in inside if (source, window_end(time, tier)) in own}
        index.roll(rolled)


def random_query(draw: np.random.Generator) -> tuple[str, Steps, bool]:
    """The text, its steps, and whether every bit must be the same."""
    tier = int(draw.choice(TIERS[:4]))
    unit = tier if draw.integers(0, 4) else 7_000
    step = unit * int(draw.integers(1, 4))
    steps = Steps(
        start := T0 + unit * int(draw.integers(0, 2 * HOUR // unit + 1)), start + step * int(draw.integers(0, 30)), step
    )
    offset = f" offset {unit * int(draw.integers(-2, 3))}ms" if draw.integers(0, 3) == 0 else ""
    at = f" @ {(T0 + unit * 3) / 1000:.3f}" if draw.integers(0, 8) == 0 else ""
    selector = f'requests{{n=~"{"." if draw.integers(0, 2) else "[0-3]"}"}}'
    if draw.integers(0, 4) == 0:
        return f"{selector}{at}{offset}", steps, True
    function = str(draw.choice(EXACT + SUMMED)) if draw.integers(0, 5) else "sketch_over_time"
    if function == "sketch_over_time" and draw.integers(0, 4):
        selector = 'requests{n!="2"}'  # the odd gauge, whose windows with NaN have no sum of the others
    range_ = f"{unit * int(draw.integers(1, 20))}ms" if draw.integers(0, 5) else "77s"
    text = f"{function}({selector}[{range_}]{at}{offset})"
    if function == "sketch_over_time":
        return str(draw.choice(SKETCHED)).format(text), steps, False
    if draw.integers(0, 6) == 0:
        text = f"max_over_time({text}[{step * 3}ms:{step}ms])"
    if draw.integers(0, 4) == 0:
        return f"sum by (n) ({text})", steps, function in EXACT
    if draw.integers(0, 6) == 0:
        return f"1 + {text} * 2", steps, function in EXACT
    return text, steps, function in EXACT


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("add_rollups", [add_tiers, roll_up])
def test_every_query_gives_what_raw_points_give(seed: int, add_rollups: Any, tmp_path: Path) -> None:
    made = random_lake(tmp_path / "lake", seed, add_rollups)
    draw = np.random.default_rng(1000 + seed)
    widths: set[tuple[int, ...]] = set()
    sketched: set[int] = set()
    for _ in range(70):
        text, steps, exact = random_query(draw)
        from_raw, plain = ask(made, text, steps, raw=True)
        streamed = bool(draw.integers(0, 2)) and len(steps) > 1
        from_tiers, answer = ask(made, text, steps, raw=False, streamed=streamed)
        try:
            same(from_tiers, from_raw, exact)
        except AssertionError as error:
            raise AssertionError(f"{text} at {steps}:\n{read_lines(to_json(answer.reads))}\n{error}") from error
        assert sorted(map(str, answer.notes)) == sorted(map(str, plain.notes))
        widths |= {tuple(read.tiles) for read in answer.reads}
        sketched |= {read.tier for read in answer.reads if "sketch_over_time" in text}
    assert any(one and one[0] != RAW for one in widths)
    assert sketched - {RAW}
    assert add_rollups is roll_up or any(len(one) > 1 for one in widths)


# What windows cannot give


def read_of(made: Tiered, text: str, steps: Steps = STEPS) -> Read:
    """Of the one fragment, whose answer is that of raw points."""
    found, answer = ask(made, text, steps, raw=False)
    same(found, ask(made, text, steps, raw=True)[0], exact=True)
    assert found
    (read,) = answer.reads
    return read


def histogram(name: str) -> Any:
    def fill(one: Any) -> None:
        one.histogram.aggregation_temporality = 2
        for n, (time, _) in enumerate(NUMBERS):
            one.histogram.data_points.add(
                time_unix_nano=time * NS, count=2 * n, sum=n, explicit_bounds=[1.0], bucket_counts=[n, n]
            )

    return metric(name, fill)


def test_histograms_deltas_and_several_sources_are_made_of_samples(
    tmp_path: Path,
) -> None:
    fills = [series("up", NUMBERS, False), delta("sent"), histogram("latency")]
    made = small(tmp_path / "one", *fills, tiers=TIERS[:3])
    assert read_of(made, "avg_over_time(up[5m])").tier == 5 * MINUTE
    assert read_of(made, "rate(sent[5m])") == Read(
        "rate(sent[5m])",
        RAW,
        "some selected series have delta temporality",
        {5 * MINUTE: ((T0 + 5 * MINUTE, T0 + 20 * MINUTE),), RAW: ((T0 + 5 * MINUTE, T0 + 20 * MINUTE),)},
    )
    for text in ("rate(latency_count[5m])", "latency_sum", 'latency_bucket{le="1"}'):
        assert read_of(made, text).reason.startswith("some selected series are histograms, summaries")
    both = small(tmp_path / "two", series("up", NUMBERS, False), collectors=("a", "b"))
    assert (
        read_of(both, "max_over_time(up[5m])").reason == "a series has samples of several sources in one rollup window"
    )


def test_a_series_that_moves_to_another_source_is_made_of_windows(tmp_path: Path) -> None:
    """Its resource changes, as with a new version of a service: other points, the same labels."""
    old = gauge("up", [(time, value or 0.0) for time, value in NUMBERS[:61]], {"service.version": "1"})
    new = gauge("up", [(time, value or 0.0) for time, value in NUMBERS[61:]], {"service.version": "2"})
    made = small(tmp_path / "lake", old, new)
    for text in ("changes(up[10m])", "delta(up[10m])", "up"):
        assert read_of(made, text).tier == 5 * MINUTE


def test_the_widest_tier_and_why_no_wider(tmp_path: Path) -> None:
    made = small(tmp_path / "lake", series("up", NUMBERS, False), series("calls", NUMBERS, True))
    told = {
        ("up", STEPS): (5 * MINUTE, "1 h rollups need a start time that is a multiple of 1 h"),
        ("up offset 10m", Steps(T0 + 10 * MINUTE, T0 + 10 * MINUTE)): (86_400_000, ""),
        ("up offset 11s", STEPS): (
            RAW,
            "10 s rollups need a start time minus offset that is a multiple of 10 s",
        ),
        ("rate(calls_total[7m])", STEPS): (MINUTE, "5 min rollups need a range that is a multiple of 5 min"),
        ("rate(calls_total[5m])", Steps(T0, T0 + 20 * MINUTE, 90_000)): (
            10_000,
            "1 min rollups need a step that is a multiple of 1 min",
        ),
        ("irate(calls_total[5m])", STEPS): (RAW, "irate needs every sample"),
        ("rate(calls_total[5m] smoothed)", STEPS): (RAW, "smoothed looks at samples outside its range"),
        ("max_over_time(rate(calls_total[5m])[10m:5m])", STEPS): (
            5 * MINUTE,
            "1 h rollups need a range that is a multiple of 1 h",
        ),
        ("timestamp(up)", STEPS): (
            5 * MINUTE,
            "1 h rollups need a start time that is a multiple of 1 h",
        ),
        ("quantile_over_time(0.5, up[5m])", STEPS): (RAW, "quantile_over_time needs every sample"),
    }
    for (text, steps), (tier, reason) in told.items():
        found, answer = ask(made, text, steps, raw=False)
        same(found, ask(made, text, steps, raw=True)[0], exact=True)
        (read,) = answer.reads
        assert (read.tier, read.reason) == (tier, reason), text
    _, answer = ask(made, "up", STEPS, raw=True)
    assert answer.reads[0].reason == "the request has tier=raw"
    _, answer = ask(made, "up", Steps(T0 + 15_849, T0 + 15_849), raw=False)
    assert read_lines(to_json(answer.reads))[1] == (
        "  Read raw samples: 10 s rollups need a time that is a multiple of 10 s."
    )
    _, answer = ask(made, "absent(up)", STEPS, raw=False)
    assert answer.reads[0].reason == "this part of the query needs every sample"


def test_names_go_from_what_windows_give_as_from_what_samples_give(tmp_path: Path) -> None:
    made = small(tmp_path / "lake", series("up", NUMBERS, False), series("down", NUMBERS, False))
    text = 'count(max_over_time({__name__=~"up|down"}[5m]))'
    for raw in (True, False):
        with pytest.raises(UserError, match="vector cannot contain metrics with the same labelset"):
            ask(made, text, STEPS, raw=raw)
    assert read_of(made, "count by (__name__) (max_over_time(up[5m]))").tier == 5 * MINUTE
    made.engine.delayed_names = True
    assert read_of(made, text).tier == 5 * MINUTE


def test_while_the_index_is_away_what_it_said_before_serves(tmp_path: Path) -> None:
    made = small(tmp_path / "lake", series("up", NUMBERS, False))
    before, _ = ask(made, "avg_over_time(up[5m])", STEPS, raw=False)
    made.index.away = True
    shorter = Steps(STEPS.start + 5 * MINUTE, STEPS.end, STEPS.step)
    found, answer = ask(made, "avg_over_time(up[5m])", shorter, raw=False)
    assert found == {labels: points[1:] for labels, points in before.items()}
    assert "segments as of" in answer.account.degraded
    with pytest.raises(Unavailable):
        ask(made, "avg_over_time(up[7m])", STEPS, raw=False)  # of another tier
    made.index.away = False
    ask(made, "up", Steps(T0, T0 + 30 * MINUTE, MINUTE), raw=True)
    made.index.away = True
    _, answer = ask(made, "avg_over_time(up[7m])", STEPS, raw=False)
    assert answer.reads[0].reason == "the index is unavailable, which knows where rollups are"


def test_a_worker_elsewhere_says_that_windows_cannot_give_it() -> None:
    (piece,) = from_batch(to_batch(Piece(Untiered("histograms"))))
    assert piece.value == Untiered("histograms")


def test_a_unit_with_tiles_travels(tmp_path: Path) -> None:
    made = small(tmp_path / "lake", series("up", NUMBERS, False))
    tiles = {5 * MINUTE: ((T0, T0 + HOUR), (T0 + 2 * HOUR, T0 + 3 * HOUR)), RAW: ((T0 + HOUR, T0 + 2 * HOUR),)}
    selection = Selection((), T0, T0 + HOUR)
    assert selection.scan
    unit = Unit(OWN, Leaf(selection.scan, FetchSamples(selection)), tuple(made.index.all), tiles=tiles)
    arrived = Unit.from_bytes(unit.to_bytes())
    assert arrived == replace(unit, segments=arrived.segments)  # bare: statistics have done their work
    assert [one.path for one in arrived.segments] == [one.path for one in unit.segments]
    assert Unit.from_bytes(arrived.to_bytes()) == arrived


@pytest.mark.parametrize("resets", [False, True])
def test_what_the_footer_tells_of_all_windows_is_not_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, resets: bool
) -> None:
    seen: set[str] = set()
    table = SegmentFile.table

    def noted(self: SegmentFile, group: int, columns: tuple[str, ...]) -> object:
        if self.segment.frequency_ms:
            seen.update(columns)
        return table(self, group, columns)

    monkeypatch.setattr(SegmentFile, "table", noted)
    points: list[tuple[int, float | None]] = [
        (T0 + (n + 1) * 10_000, float(n % 50 if resets else n)) for n in range(120)
    ]
    made = small(tmp_path / "lake", series("calls", points, True))
    assert read_of(made, "rate(calls_total[10m])").tiles == {5 * MINUTE: ((T0, T0 + 20 * MINUTE),)}
    assert "chq_rollup_last" in seen
    assert "chq_rollup_count" not in seen  # 30 in each
    assert {"chq_rollup_resets", "chq_rollup_reset_sum"} <= seen if resets else not any("reset" in one for one in seen)


GOLDEN = Path(__file__).parents[1] / "golden" / "tiers.txt"


def test_golden(tmp_path: Path) -> None:
    """`lakerunner promql --explain`, as a file to read: tests/golden/tiers.txt. GOLDEN=rewrite writes it."""
    made = small(tmp_path / "lake", series("up", NUMBERS, False), series("calls", NUMBERS, True), delta("sent"))
    made.index.all = [replace(one, rolled=False) if one.frequency_ms == MINUTE else one for one in made.index.all]
    shown = []
    for text in (
        "sum by (job) (rate(calls_total[5m]))",
        "up / max_over_time(up[7m])",
        "rate(sent[5m]) + irate(calls_total[5m])",
        "histogram_quantile(0.99, sum by (job) (sketch_over_time(up[10m])))",
        "1 + time()",
    ):
        _, answer = ask(made, text, STEPS, raw=False)
        shown.append("\n".join(["---", text, "---", *read_lines(to_json(answer.reads))]))
    found = "\n".join(shown) + "\n"
    if os.environ.get("GOLDEN") == "rewrite":
        GOLDEN.write_text(found)
    assert found == GOLDEN.read_text()
