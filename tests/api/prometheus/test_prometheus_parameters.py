"""Times, durations, limits and names, read as Prometheus reads them."""

from __future__ import annotations

import pytest

from lakerunner.api.prometheus.request import Parameters, read_duration, unescaped_label
from lakerunner.api.prometheus.response import PrometheusError
from lakerunner.model.time import MAX_NS, MIN_NS

S, MS = 1_000_000_000, 1_000_000


@pytest.mark.parametrize(
    ("text", "ns"),
    [
        ("0", 0),
        ("1435781430", 1435781430 * S),
        ("1435781430.781", 1435781430 * S + 781 * MS),
        ("1435781430.7814", 1435781430 * S + 781 * MS),
        ("1e3", 1000 * S),
        ("-1.5", -1500 * MS),
        ("2015-07-01T20:10:30.781Z", 1435781430 * S + 781 * MS),
        ("2015-07-01T22:10:30.781123456+02:00", 1435781430 * S + 781123456),
        ("2015-07-01T18:40:30-01:30", 1435781430 * S),
        ("-292273086-05-16T16:47:06Z", MIN_NS),
        ("+292277025-08-18T07:12:54.999999999Z", MAX_NS),
        ("1e300", MAX_NS),
    ],
)
def test_times(text: str, ns: int) -> None:
    assert Parameters([("t", text)]).time("t") == ns


@pytest.mark.parametrize("text", ["", "x", "2015-07-01", "2015-02-31T00:00:00Z", "inf", "nan", " 1", "1_0", "1e999"])
def test_what_is_no_time(text: str) -> None:
    with pytest.raises(
        PrometheusError, match=r'invalid parameter "t": cannot parse ".*" to a valid timestamp'
    ) as found:
        Parameters([("t", text)]).time("t")
    assert found.value.type == "bad_data"


@pytest.mark.parametrize(
    ("text", "ms"),
    [("15", 15_000), ("0.5", 500), ("5m", 300_000), ("1h30m", 5_400_000), ("1w2d", 777_600_000), ("0", 0)],
)
def test_durations(text: str, ms: int) -> None:
    assert read_duration("step", text) == ms * MS


@pytest.mark.parametrize(
    ("text", "why"),
    [("", "to a valid duration"), ("5x", "to a valid duration"), ("m5", "valid"), ("1e300", "overflows")],
)
def test_what_is_no_duration(text: str, why: str) -> None:
    with pytest.raises(PrometheusError, match=why):
        read_duration("step", text)


def test_limits_and_flags() -> None:
    given = Parameters([("limit", "7"), ("bad", "-1"), ("worse", "x"), ("yes", "true"), ("no", "0")])
    assert (given.count("limit"), given.count("none"), given.flag("yes"), given.flag("no"), given.flag("none")) == (
        7,
        0,
        True,
        False,
        False,
    )
    with pytest.raises(PrometheusError, match='invalid parameter "bad": limit must be non-negative'):
        given.count("bad")
    with pytest.raises(PrometheusError, match=r'invalid parameter "worse": strconv\.Atoi: parsing "x": invalid syntax'):
        given.count("worse")
    with pytest.raises(PrometheusError, match="neither true nor false"):
        given.flag("worse")


@pytest.mark.parametrize(
    ("escaped", "name"),
    [
        ("job", "job"),
        ("U__k8s_2e_pod", "k8s.pod"),
        ("U__a__b", "a_b"),
        ("U__gr_f6__df_e", "größe"),
        ("U___1F600_", "\U0001f600"),
        ("U__a_", "U__a_"),
        ("U__a_zz_", "U__a_zz_"),
        ("U___d800_", "U___d800_"),
        ("U___1234567_", "U___1234567_"),
    ],
)
def test_names_that_fit_a_path(escaped: str, name: str) -> None:
    assert unescaped_label(escaped) == name
