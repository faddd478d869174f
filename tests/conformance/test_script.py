"""The grammar of scripts, the comparison and the ledger: asserted on values, without an engine."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from conformance.answer import Answer, almost_equal, problem_of, same_histogram
from conformance.ledger import Ledger
from conformance.memory import MemorySource
from conformance.notation import Point, ScriptError, duration_ms, parse_number, parse_series, parse_starts
from conformance.script import parse_script
from lakerunner.model.labels.matcher import Matcher
from lakerunner.promql.selection.staleness import STALE, is_stale
from lakerunner.series.histograms.histogram import CUSTOM_BUCKETS, Histogram, ResetHint
from lakerunner.series.values import Steps

HERE = Path("here.test")


def numbers(line: str) -> list[float | None]:
    _, points = parse_series(line)
    assert not any(isinstance(point.value, Histogram) for point in points)
    return [point.value for point in points]  # type: ignore[misc]


def histograms(line: str) -> list[Histogram]:
    found = [point.value for point in parse_series(line)[1]]
    assert all(isinstance(one, Histogram) for one in found)
    return found  # type: ignore[return-value]


def one_case(text: str) -> Any:
    (case,) = parse_script(text, HERE)
    return case


def test_values_and_their_repetition() -> None:
    assert numbers("m 5 2+3x2 _ _x2 7x1 -1-1x2") == [5, 2, 5, 8, None, None, None, 7, 7, -1, -2, -3]
    assert numbers("m 1e-3 .5 +Inf -Inf 1m 1e+3+1e2x1") == [0.001, 0.5, math.inf, -math.inf, 60, 1000, 1100]
    assert math.isnan(numbers("m NaN")[0] or 0)
    assert is_stale(np.array(numbers("m stale"), np.float64)).tolist() == [True]


def test_0x3_is_a_zero_and_three_more_but_a_bare_number_may_be_hexadecimal() -> None:
    assert numbers("m 0x3") == [0, 0, 0, 0]
    assert parse_number("0x1F") == 31
    assert parse_number("1h") == 3600


@pytest.mark.parametrize(
    "line", ["m 1+1", "m stalex2", "m one", "m 1,2", "m {{bucket:1}}", "m {{sum:1 sum:2}}", "m{a} 1"]
)
def test_what_the_grammar_does_not_know_is_refused(line: str) -> None:
    with pytest.raises((ScriptError, ValueError)):
        parse_series(line)


def test_labels_in_every_way_of_writing_them() -> None:
    assert parse_series("m{b=\"2\", a='1',} 1")[0] == (("__name__", "m"), ("a", "1"), ("b", "2"))
    assert parse_series('{"a metric", "a.label"=`x\\n`} 1')[0] == (("__name__", "a metric"), ("a.label", "x\\n"))
    assert parse_series("{} 1")[0] == ()
    assert parse_series('{a="\\u00e4\\x41\\"\\t"} 1')[0] == (("a", 'äA"\t'),)
    assert parse_series('m{a="}"} {{count:1}}')[0] == (("__name__", "m"), ("a", "}"))


def test_a_histogram_with_every_key() -> None:
    (found,) = histograms(
        "m {{schema:-1 count:12 sum:-3.5 z_bucket:2 z_bucket_w:0.001 offset:-2 buckets:[1 0 4] n_offset:3 n_buckets:[5]"
        " counter_reset_hint:gauge}}"
    )
    assert (found.schema, found.count, found.sum, found.zero_count, found.zero_threshold) == (-1, 12, -3.5, 2, 0.001)
    assert (found.positive.indexes.tolist(), found.positive.counts.tolist()) == ([-2, -1, 0], [1, 0, 4])
    assert (found.negative.indexes.tolist(), found.negative.counts.tolist()) == ([3], [5])
    assert found.reset_hint == ResetHint.GAUGE
    assert histograms("m {{}}")[0].count == 0
    assert histograms("m {{schema:-53 custom_values:[5 10] buckets:[1 2 3]}}")[0].custom_values == (5, 10)


def test_histograms_step_by_step() -> None:
    up = histograms("m {{schema:0 count:1 sum:1 buckets:[1]}}+{{schema:0 count:2 sum:3 offset:1 buckets:[2]}}x2")
    assert [one.count for one in up] == [1, 3, 5]
    assert [one.sum for one in up] == [1, 4, 7]
    assert (up[2].positive.indexes.tolist(), up[2].positive.counts.tolist()) == ([0, 1], [1, 4])
    down = histograms("m {{count:4 buckets:[4]}}-{{count:1 buckets:[1]}}x1")
    assert down[1].positive.counts.tolist() == [3]
    # Buckets 1 and 2 of schema 1 are both in bucket 1 of schema 0.
    coarse = histograms("m {{schema:0 count:1 buckets:[1]}}+{{schema:1 count:2 offset:1 buckets:[1 1]}}x1")
    assert (coarse[1].positive.indexes.tolist(), coarse[1].positive.counts.tolist()) == ([0, 1], [1, 2])
    assert [one.count for one in histograms("m {{count:2}}x2")] == [2, 2, 2]


def test_durations() -> None:
    assert [duration_ms(text) for text in ("0", "5m", "1h30m", "250ms", "1d", "1m500ms")] == [
        0, 300_000, 5_400_000, 250, 86_400_000, 60_500,
    ]  # fmt: skip
    for wrong in ("", "5", "5m1h", "-5m"):
        with pytest.raises(ValueError, match="no duration"):
            duration_ms(wrong)


def test_start_times_are_relative_to_the_samples() -> None:
    assert parse_starts('m{a="b"}@st _ -30s 0-1mx1 -1msx1 _x2') == (
        (("__name__", "m"), ("a", "b")),
        [None, -30_000, 0, -60_000, -1, -1, None, None],
    )
    case = one_case("load 1m\n  m@st _ -30s\n  m 1 2\n\neval instant at 0 m\n")
    (samples,) = case.state.series.values()
    assert [(one.time, one.start) for one in samples] == [(0, 0), (60_000, 30_000)]
    with pytest.raises(ScriptError, match=r"here\.test:3: start times"):
        parse_script("load 1m\n  m@st _\n  m 1 2\n", HERE)


def test_loads_add_up_and_clear_forgets() -> None:
    first, second, third = parse_script(
        "load 1m\n a 1 2\n\neval instant at 0 a\n a 1\n\nload 1m\n a _ _ 3\n b 1\n\neval instant at 0 a\n\nclear\n"
        "eval instant at 0 a\n",
        HERE,
    )
    assert [len(case.state.series) for case in (first, second, third)] == [1, 2, 0]
    assert [one.value for one in second.state.series[(("__name__", "a"),)]] == [1, 2, 3]
    assert (first.line, second.line, third.line) == (4, 11, 14)


def test_classic_histograms_also_as_native_ones() -> None:
    case = one_case(
        'load_with_nhcb 1m\n h_bucket{le="1", a="b"} 1 2\n h_bucket{le="5", a="b"} 3 5\n h_bucket{le="+Inf", a="b"} 4 9'
        '\n h_sum{a="b"} 7 8\n h_count{a="b"} 4 9\n\neval instant at 0 h\n'
    )
    assert len(case.state.series) == 6
    first, second = (one.value for one in case.state.series[(("__name__", "h"), ("a", "b"))])
    assert isinstance(first, Histogram)
    assert isinstance(second, Histogram)
    assert (first.schema, first.custom_values, first.count, first.sum) == (CUSTOM_BUCKETS, (1, 5), 4, 7)
    assert first.positive.counts.tolist() == [1, 2, 1]
    assert second.positive.counts.tolist() == [2, 3, 4]


def test_what_is_expected_of_a_case() -> None:
    case = one_case(
        "eval instant at 5m sum(a)\n expect warn msg: PromQL warning: so (1:1)\n expect no_info\n expect ordered\n"
        ' {b="2"} 1\n {b="1"} {{count:1 counter_reset_hint:gauge}}\n'
    )
    assert (case.query, case.steps, case.instant) == ("sum(a)", Steps(300_000, 300_000), True)
    assert [one.text for one in case.warn] == ["PromQL warning: so (1:1)"]
    assert (case.no_info, case.no_warn, case.ordered) == (True, False, True)
    assert [dict(labels)["b"] for labels in case.series] == ["2", "1"]
    assert [points[0].hint_given for points in case.series.values()] == [False, True]
    assert one_case("eval instant at 0 1\n 0x10\n").scalar == 16
    assert one_case('eval instant at 0 "a"\n expect string "a\\n"\n').string == "a\n"
    ranged = one_case("eval range from 1m to 3m step 30s a\n a 1 2 3 _ 5\n")
    assert (ranged.steps, ranged.instant) == (Steps(60_000, 180_000, 30_000), False)


def test_old_spellings_mean_the_same() -> None:
    assert one_case("eval_ordered instant at 0 a\n").ordered
    assert one_case("eval_warn instant at 0 a\n").warn[0].meets("anything")
    assert one_case("eval_info range from 0 to 1m step 1m a\n").info[0].meets("anything")
    failing = one_case("eval_fail instant at 0 a\n expected_fail_message no such thing\n")
    assert [one.text for one in failing.fail] == ["no such thing"]
    assert one_case("eval_fail instant at 0 a\n expected_fail_regexp no .*\n").fail[0].meets("there is no thing")


def test_a_range_vector_is_asked_for_at_its_end() -> None:
    case = one_case("eval instant at 9m a[2m]\n expect range vector from 1m to 2m step 1m\n a 1 2\n")
    assert (case.steps, case.points) == (Steps(120_000, 120_000), Steps(60_000, 120_000, 60_000))


@pytest.mark.parametrize(
    "text",
    ["evil instant at 0 a", "eval instant a", "eval instant at 0 a\n expect nothing", "load soon\n a 1",
     "eval instant at 0 a\n a 1 2", "eval instant at 0 a\n expect info\n expect no_info"],
)  # fmt: skip
def test_a_wrong_script_is_refused_with_its_place(text: str) -> None:
    with pytest.raises(ScriptError, match=r"here\.test:\d+: "):
        parse_script(text, HERE)


def test_numbers_are_equal_within_a_millionth() -> None:
    assert almost_equal(1, 1.0000019)  # the difference counts against the sum of both
    assert not almost_equal(1, 1.000003)
    assert almost_equal(math.nan, -math.nan)
    assert not almost_equal(math.nan, float(STALE))
    assert not almost_equal(0, 1e-300)
    assert almost_equal(math.inf, math.inf)
    assert not almost_equal(math.inf, -math.inf)


def test_histograms_are_equal_but_for_empty_buckets_and_hints_that_were_not_given() -> None:
    def same(one: str, other: str) -> bool:
        return same_histogram(parse_series(f"m {one}")[1][0], histograms(f"m {other}")[0])

    assert same("{{count:1 offset:2 buckets:[1]}}", "{{count:1 buckets:[0 0 1 0] counter_reset_hint:gauge}}")
    assert not same(
        "{{count:1 buckets:[1] counter_reset_hint:unknown}}", "{{count:1 buckets:[1] counter_reset_hint:gauge}}"
    )
    assert not same("{{count:1 buckets:[1]}}", "{{count:1 offset:1 buckets:[1]}}")
    assert not same("{{count:1 z_bucket_w:0.1}}", "{{count:1}}")
    assert not same("{{schema:-53 custom_values:[1]}}", "{{schema:-53 custom_values:[2]}}")


def test_an_answer_is_compared_with_what_is_expected() -> None:
    case = one_case('eval range from 0 to 2m step 1m a\n a{x="1"} 1 _ 3\n a{x="2"} _ 5\n')
    one, two = (("__name__", "a"), ("x", "1")), (("__name__", "a"), ("x", "2"))
    right = [(one, [(0, 1.0), (120_000, 3.0)]), (two, [(60_000, 5.0)])]
    assert problem_of(case, Answer("matrix", right)) is None
    assert "missing" in str(problem_of(case, Answer("matrix", right[:1])))
    assert "not sorted" in str(problem_of(case, Answer("matrix", right[::-1])))
    assert "expected at" in str(problem_of(case, Answer("matrix", [(one, [(0, 1.0)]), right[1]])))
    assert "expected 3.0, got 4.0" in str(
        problem_of(case, Answer("matrix", [(one, [(0, 1.0), (120_000, 4.0)]), right[1]]))
    )
    assert problem_of(case, Answer(error="no")) == "failed: no"


def test_notes_are_compared_both_ways() -> None:
    case = one_case("eval instant at 0 a\n expect warn regex: b.*\n")
    assert problem_of(case, Answer(warnings=["bad"])) is None
    assert "no warning" in str(problem_of(case, Answer()))
    assert "unexpected warning: other" in str(problem_of(case, Answer(warnings=["bad", "other"])))
    assert problem_of(one_case("eval instant at 0 a\n"), Answer(warnings=["any"])) is None
    failing = one_case("eval instant at 0 a\n expect fail msg: so\n")
    assert problem_of(failing, Answer(error="so")) is None
    assert "otherwise" in str(problem_of(failing, Answer(error="so it is")))
    assert "did not fail" in str(problem_of(failing, Answer()))


def test_a_state_as_a_source() -> None:
    case = one_case(
        'load 1m\n a{x="1"} 1 2 3\n a{x="2"} {{count:1}} {{count:2}} {{count:1}} {{count:5 counter_reset_hint:reset}}\n'
        ' a{x="3"} {{count:1 counter_reset_hint:gauge}} {{count:2}}\n b 1\n\neval instant at 0 a\n'
    )
    source = MemorySource(case.state)
    found = source.select((Matcher("__name__", "=", "a"), Matcher("x", "!~", "2|3")), 0, 60_000)
    assert (list(found.labels), found.offsets.tolist(), found.values.tolist()) == (
        [(("__name__", "a"), ("x", "1"))], [0, 1], [2.0],
    )  # fmt: skip
    assert found.histograms is None
    stored = source.select((Matcher("x", "=~", "2|3"),), -1, 600_000)
    assert stored.histograms is not None
    hints = [one.reset_hint.name for one in stored.histograms]
    assert hints == ["UNKNOWN", "NOT_RESET", "UNKNOWN", "UNKNOWN", "GAUGE", "UNKNOWN"]


def test_the_ledger_is_right_in_both_directions(tmp_path: Path) -> None:
    (tmp_path / "ledger.txt").write_text("# words\na.test:3 is not there yet\nb.test:9 neither\n")
    ledger = Ledger.read(tmp_path / "ledger.txt")
    assert ledger.wrong({"a.test:3": "so"}, [Path("a.test")]) == []
    assert ledger.wrong({}, [Path("a.test")]) == ["a.test:3 is in the ledger (is not there yet) and passes"]
    assert ledger.wrong({"c.test:1": "so"}, [Path("c.test")]) == ["c.test:1 fails and is not in the ledger"]
    (tmp_path / "ledger.txt").write_text("a.test:3\n")
    with pytest.raises(ValueError, match="no reason"):
        Ledger.read(tmp_path / "ledger.txt")


def test_points_keep_the_hint_of_the_last_histogram_of_a_sequence() -> None:
    _, points = parse_series("m {{count:1}}+{{count:1 counter_reset_hint:gauge}}x1")
    assert [point.hint_given for point in points] == [True, True]
    assert isinstance(points[1], Point)
