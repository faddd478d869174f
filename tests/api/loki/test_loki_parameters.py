"""Parameters of Loki's API, parsed as Loki does."""

from __future__ import annotations

from uuid import UUID

import pytest

from lakerunner.api.loki.known_rules import KnownRules
from lakerunner.api.loki.log_parameters import LogParameters
from lakerunner.api.loki.loki_errors import LokiError
from lakerunner.model.errors import Unavailable
from lakerunner.model.metric_rules.metric_rule import Measure, MetricRule, RuleVersion
from lakerunner.model.streams.stream_rules import DEFAULT_RULES, StreamRules

NOW = 1_714_564_800_000_000_000
SECOND = 1_000_000_000


def given(**parameters: str) -> LogParameters:
    return LogParameters(list(parameters.items()))


@pytest.mark.parametrize(
    ("text", "ns"),
    [
        ("4", 4 * SECOND),
        ("-4", -4 * SECOND),
        ("4000000000", 4_000_000_000 * SECOND),
        ("14000000000", 14 * SECOND),
        ("1714564800000000001", NOW + 1),
        ("1714564800.5", NOW + SECOND // 2),
        ("1714564800.12345", NOW + 123_000_000),
        ("1.5e3", 1500 * SECOND),
        ("2024-05-01T12:00:00Z", NOW),
        ("2024-05-01T14:00:00.000000001+02:00", NOW + 1),
    ],
)
def test_times(text: str, ns: int) -> None:
    assert given(time=text).time("time", 0) == ns


@pytest.mark.parametrize("text", ["soon", "1e9", "2024-05-01", "2024-02-30T00:00:00Z", "2024-05-01 12:00:00Z", "1,5"])
def test_wrong_times(text: str) -> None:
    with pytest.raises(LokiError) as refused:
        given(time=text).time("time", 0)
    assert refused.value.message == f'strconv.ParseInt: parsing "{text}": invalid syntax'


def test_bounds() -> None:
    hour = 3600 * SECOND
    assert given().bounds(NOW) == (NOW - hour, NOW)
    assert given(since="10m").bounds(NOW) == (NOW - hour // 6, NOW)
    assert given(end=str(NOW - hour)).bounds(NOW) == (NOW - 2 * hour, NOW - hour)
    assert given(end=str(NOW + hour)).bounds(NOW) == (NOW - hour, NOW + hour)
    assert given(start="1", end="2", since="5d").bounds(NOW) == (SECOND, 2 * SECOND)


def test_steps_and_intervals() -> None:
    assert given().step(0, 10 * SECOND) == SECOND
    assert given().step(0, 86_400 * SECOND) == 345 * SECOND
    assert given(step="0.5").step(0, SECOND) == SECOND // 2
    assert given(step="1h30m").step(0, SECOND) == 5400 * SECOND
    assert given(step="1").step(0, 11_000 * SECOND) == SECOND
    with pytest.raises(LokiError, match=r"11,000 points"):
        given(step="1").step(0, 11_001 * SECOND)
    with pytest.raises(LokiError, match="It overflows int64"):
        given(step="1e30").step(0, SECOND)
    assert (given().interval(), given(interval="2s").interval()) == (0, 2 * SECOND)


def test_limits_and_directions() -> None:
    assert (given().limit(), given(limit="7").limit(), given(limit="0").limit(zero=100)) == (100, 7, 100)
    with pytest.raises(LokiError, match="limit must be a positive value"):
        given(limit="-1").limit()
    with pytest.raises(LokiError, match="value out of range"):
        given(limit="9" * 30).limit()
    assert (given().direction(), given(direction="Forward").direction()) == ("backward", "forward")


def test_rules_are_remembered_and_outlive_the_index() -> None:
    organization, clock, asked = UUID(int=1), [0.0], []
    plain = StreamRules(detect_levels=False)
    answers: list[StreamRules | Exception] = [DEFAULT_RULES, plain, Unavailable("away"), Unavailable("away")]

    def find(one: UUID) -> StreamRules:
        asked.append(one)
        found = answers[len(asked) - 1]
        if isinstance(found, Exception):
            raise found
        return found

    rules = KnownRules(find, 5.0, lambda: clock[0])
    assert rules.of(organization) == rules.of(organization) == DEFAULT_RULES
    clock[0] = 5.0
    assert rules.of(organization) == plain
    clock[0] = 20.0
    assert rules.of(organization) == plain
    with pytest.raises(Unavailable):
        rules.of(UUID(int=2))
    assert len(asked) == 4


def test_rules_over_logs_are_those_of_the_streams() -> None:
    rule = MetricRule("r", "logs", '{app="a"}', Measure.parse("count"), "made")
    first, second = (RuleVersion(number, UUID(int=1), number, rule) for number in (1, 2))
    answers = iter([(first,), (second,), (second,), (second,)])
    clock = [0.0]
    rules = KnownRules(lambda _: DEFAULT_RULES, 5.0, lambda: clock[0], lambda _: next(answers))
    assert rules.log_rules(UUID(int=1)) == (DEFAULT_RULES, ())  # the streams changed while both were read
    clock[0] = 5.0
    assert rules.log_rules(UUID(int=1)) == (DEFAULT_RULES, (second,))
