"""Lookback, open on the left and closed on the right, and stale markers, compared with plain loops."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from lakerunner.promql.selection.staleness import STALE, is_stale, latest, latest_index, without_stale_markers
from lakerunner.series.values import Samples

times = st.lists(st.integers(0, 60), max_size=12).map(sorted)  # one time may come several times
series = st.lists(times, max_size=4)


@st.composite
def samples(draw: Any) -> Samples:
    drawn = draw(series)
    count = sum(map(len, drawn))
    values = np.array(draw(st.lists(st.sampled_from([1.0, -2.5, np.nan, STALE]), min_size=count, max_size=count)))
    offsets = np.concatenate([np.zeros(1, np.int64), np.cumsum([len(one) for one in drawn], dtype=np.int64)])
    return Samples(
        [(("n", str(n)),) for n in range(len(drawn))],
        offsets.astype(np.int64),
        np.array([time for one in drawn for time in one], np.int64),
        values.astype(float),
    )


ends = st.lists(st.integers(-5, 70), min_size=1, max_size=8).map(lambda found: np.array(sorted(found), np.int64))


@given(samples(), ends, st.integers(1, 30))
def test_the_latest_sample_counts_unless_it_is_a_stale_marker(given_: Samples, ends_: Any, lookback: int) -> None:
    values, present = latest(given_, ends_, lookback)
    index = latest_index(given_, ends_, lookback)
    for n in range(len(given_)):
        own = range(given_.offsets[n], given_.offsets[n + 1])
        for step, end in enumerate(ends_):
            inside = [place for place in own if end - lookback < given_.times[place] <= end]
            there = bool(inside) and not is_stale(given_.values[inside[-1] :][:1])[0]
            assert present[n, step] == there
            assert index[n, step] == (inside[-1] if there else -1)
            if there:
                assert values[n, step : step + 1].tobytes() == given_.values[inside[-1] :][:1].tobytes()


@given(samples())
def test_ranges_hold_no_stale_markers(given_: Samples) -> None:
    kept = without_stale_markers(given_)
    for n in range(len(given_)):
        before = slice(given_.offsets[n], given_.offsets[n + 1])
        after = slice(kept.offsets[n], kept.offsets[n + 1])
        wanted = ~is_stale(given_.values[before])
        assert kept.times[after].tolist() == given_.times[before][wanted].tolist()
        assert kept.values[after].tobytes() == given_.values[before][wanted].tobytes()
