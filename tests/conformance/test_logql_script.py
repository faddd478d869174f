"""The grammar of LogQL scripts and the comparison of their answers: asserted on values, without an engine."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from conformance.answer import Answer, LogEntry
from conformance.logql_check import log_problem
from conformance.logql_push import parts_of, push_request
from conformance.logql_script import EPOCH, LogCase, LogState, go_duration, parse_logql_script, read_logql_script
from conformance.notation import ScriptError
from conformance.run import SHARED
from lakerunner.pipeline.transcode.loki import protobuf_streams
from lakerunner.series.values import Steps

HERE = Path("here.logqltest")
SECOND = 10**9


def one_case(text: str) -> LogCase:
    (case,) = parse_logql_script(text, HERE)
    return case


def loaded(*lines: str) -> list[LogEntry]:
    return list(
        one_case("load\n" + "".join(f"  {line}\n" for line in lines) + "eval instant at 0s 1\n  1\n").state.lines
    )


def at(seconds: float) -> int:
    return EPOCH + int(seconds * SECOND)


def test_lines_that_are_loaded() -> None:
    assert loaded('{app="a", b="2"} "x=1" @ 20s') == [LogEntry(at(20), "x=1", (("app", "a"), ("b", "2")))]
    assert loaded('{app="a"} "v={{.i}}" @ 1s [repeat every 500ms for 3] # a comment') == [
        LogEntry(at(1 + n / 2), f"v={n}", (("app", "a"),)) for n in range(3)
    ]
    assert loaded('{app=""} `{"a":"#"}` @ 1m30s [metadata k="v" "a b"="" ]') == [
        LogEntry(at(90), '{"a":"#"}', (("app", ""),), (("k", "v"), ("a b", "")))
    ]
    assert loaded('{app="a"} "no \\n escapes\\" @ 0s') == [LogEntry(at(0), "no \\n escapes\\", (("app", "a"),))]


@pytest.mark.parametrize(
    "line",
    ['{app="a"} "x"', '{app="a"} x @ 1s', 'app "x" @ 1s', '{app="a"} "x" @ 5', '{app="a"} "x" @ 1s [repeat 3]',
     '{app="a"} "x" @ 1s [metadata k=v]', '{app="a"} "x" @ 1s [repeat every 1s for 0]',
     '{app="a"} "x" @ 1s [parsed a="b"]'],
)  # fmt: skip
def test_a_line_that_is_not_understood_is_refused_with_its_place(line: str) -> None:
    with pytest.raises(ScriptError, match=r"here\.logqltest:2: "):
        loaded(line)


@pytest.mark.parametrize(
    ("text", "place"),
    [("lode\n", 1), ("eval instant at 0s\n", 1), ("  {a=1}\n", 1), ("clear\n  stray\n", 2),
     ("eval instant at 0s 1\n  expect nothing\n", 2), ('eval instant at 0s 1\n  {a="b"} 1 2\n', 2),
     ("eval range from 1s to 0s step 1s 1\n", 1), ('eval instant at 0s 1\n  {a="b"}\n', 2)],
)  # fmt: skip
def test_a_wrong_script_is_refused_with_its_place(text: str, place: int) -> None:
    with pytest.raises(ScriptError, match=rf"here\.logqltest:{place}: "):
        parse_logql_script(text, HERE)


def test_durations_are_those_of_go() -> None:
    assert [go_duration(text) for text in ("0", "0s", "1m30s", "1.5h", "-10ms", "250us", ".5s", "2µs", "7ns")] == [
        0, 0, 90 * SECOND, 5400 * SECOND, -10_000_000, 250_000, SECOND // 2, 2000, 7,
    ]  # fmt: skip
    for wrong in ("", "5", "1d", "1s2", "s"):
        with pytest.raises(ScriptError, match="no duration"):
            go_duration(wrong)


def test_loads_add_up_and_clear_forgets() -> None:
    one = '{app="a"} "x" @ 1s'
    first, second, third = parse_logql_script(
        f"load\n  {one}\neval instant at 0s 1\n  1\n\n# more\nload\n  {one}\n  # words\n\n  {one}\n"
        "eval instant at 0s 1\n  1\nclear\neval instant at 0s 1\n  1\n",
        HERE,
    )
    assert [len(case.state.lines) for case in (first, second, third)] == [1, 3, 0]
    assert [case.line for case in (first, second, third)] == [3, 12, 15]


def test_what_is_expected_of_series() -> None:
    case = one_case(
        'eval range from 0s to 2s step 500ms rate({a="#"}[1m]) # a comment\n  skip values-comparison on "some stack"\n'
        '  {b="", a="x"} 1 _ 3+1x1 # (0s,1s]\n  {} NaN\n'
    )
    assert (case.query, case.instant, case.steps) == ('rate({a="#"}[1m])', False, Steps(at(0), at(2), SECOND // 2))
    assert [point.value for point in case.series[("a", "x"), ("b", "")]] == [1, None, 3, 4]
    assert math.isnan(float(str(case.series[()][0].value)))
    assert one_case("eval instant at 1s 1 + 1\n  2\n").scalar == 2
    assert one_case('eval instant at 1s sort(x)\n  expect ordered\n  {b="2"} 1\n  {b="1"} 2\n').ordered
    assert one_case("eval instant at 1s x\n  expect empty\n").series == {}


def test_a_message_is_a_part_of_the_error_and_a_pattern_is_found_in_it() -> None:
    def meets(line: str, error: str) -> bool:
        return one_case(f"eval instant at 0s x\n  {line}\n").fail[0].meets(error)

    assert meets('expect fail msg: parsing \\"\\": (', 'strconv: parsing \\"\\": (here)')
    assert not meets("expect fail msg: a.c", "abc")
    assert meets("expect fail regex: a.c$", "so abc")
    assert meets("expect fail", "anything")


def test_log_queries_in_every_way_of_asking_them() -> None:
    case = one_case(
        'eval select from 0 to 20s backward {app="a"} |= "x"\n  {app="a"} "x2" @ 10s\n  {app="a"} `x"1` @ 5s # first\n'
    )
    assert (case.direction, case.limit, case.interval, case.window) == ("backward", 1000, 0, Steps(at(0), at(20)))
    assert [(entry.time, entry.text) for entry in case.lines] == [(at(10), "x2"), (at(5), 'x"1')]
    limited = one_case('eval select from 0s to 20s forward limit 2 interval 5s {app="a"}\n  expect empty\n')
    assert (limited.direction, limited.limit, limited.interval) == ("forward", 2, 5 * SECOND)
    at_once = one_case('eval instant at 60s {app="a"}\n  {app="a"} "x" @ 40s\n')
    assert at_once.window == Steps(at(30), at(60))
    assert (at_once.by_kind, at_once.direction) == (False, "forward")


class Said:
    """Answers as it was told, whatever is asked."""

    def __init__(self, *answers: Answer) -> None:
        self._answers = list(answers)
        self.asked: list[LogCase] = []

    def ask(self, case: LogCase) -> Answer:
        self.asked.append(case)
        return self._answers.pop(0)


def problem(text: str, *answers: Answer) -> str:
    return str(log_problem(one_case(text), Said(*answers)))


def vector(value: float, when: int = at(60), kind: str = "vector") -> Answer:
    return Answer(kind, [((("a", "b"),), [(when, float(value))])])


def test_an_instant_is_also_asked_as_the_middle_of_a_range() -> None:
    text = 'eval instant at 60s x\n  {a="b"} 3\n'
    assert problem(text, vector(3), vector(3, kind="matrix")) == "None"
    assert problem(text, vector(4)).endswith("expected 3.0, got 4.0")
    assert problem(text, vector(3), vector(4, kind="matrix")).startswith("in a range: ")
    assert problem(text, vector(3), Answer(error="of another line")) == "None"
    subject = Said(vector(3), vector(3, kind="matrix"))
    log_problem(one_case(text), subject)
    assert [case.steps for case in subject.asked] == [Steps(at(60), at(60)), Steps(at(0), at(120), 60 * SECOND)]


Given = tuple[float, str, dict[str, str], dict[str, str]]


def entries(*given: Given) -> Answer:
    found = [
        LogEntry(at(time), text, (("app", "a"),), pairs(meta), pairs(parsed)) for time, text, meta, parsed in given
    ]
    return Answer("streams", entries=found)


def pairs(given: dict[str, str]) -> tuple[tuple[str, str], ...]:
    return tuple(sorted(given.items()))


def test_lines_are_compared_in_their_order_and_with_all_labels_or_by_kind() -> None:
    ask = 'eval select from 0s to 9s forward {app="a"}\n'
    together = f'{ask}  {{app="a", m="1"}} "x" @ 1s\n  {{app="a", m="1"}} "y" @ 2s\n'
    one: Given = (1.0, "x", {"m": "1"}, {})
    two: Given = (2.0, "y", {}, {"m": "1"})
    assert problem(together, entries(one, two)) == "None"
    assert problem(together, entries(two, one)) != "None"
    assert problem(together, entries(one)) != "None"
    kinds = f'{ask}  {{app="a"}} "x" @ 1s [metadata m="1"]\n  {{app="a"}} "y" @ 2s [parsed m="1"]\n'
    assert problem(kinds, entries(one, two)) == "None"
    assert problem(kinds, entries(one, (2.0, "y", {"m": "1"}, {}))) != "None"
    assert problem(f"{ask}  expect empty\n", entries()) == "None"
    assert problem(f"{ask}  expect empty\n", entries(one)) != "None"
    assert problem(together, vector(1)) == "expected lines, got a vector"
    assert problem(f"{ask}  expect fail msg: so\n", Answer(error="it is so")) == "None"
    assert problem(f"{ask}  expect fail msg: so\n", entries(one)).startswith("did not fail")


def pushed(lines: Sequence[LogEntry]) -> list[tuple[Any, list[tuple[Any, ...]]]]:
    streams = protobuf_streams(memoryview(push_request(lines)))
    return [(tuple(labels), [(one.ns, one.line, tuple(one.metadata)) for one in found]) for labels, found in streams]


def test_the_push_request_of_lines() -> None:
    lines = loaded('{a="b\\"c"} "x" @ 0s [metadata k="v"]', '{z=""} "y" @ 1s', '{a="b\\"c"} "z" @ 1ns')
    assert pushed(lines) == [
        ((("a", 'b"c'),), [(at(0), "x", (("k", "v"),)), (EPOCH + 1, "z", ())]),
        ((("z", ""),), [(at(1), "y", ())]),
    ]
    assert pushed([replace(lines[0], text="\udcff", metadata=())]) == [((("a", 'b"c'),), [(at(0), b"\xff", ())])]


def test_lines_are_parted_in_their_order() -> None:
    lines = tuple(loaded('{a="b"} "x{{.i}}" @ 0s [repeat every 1s for 7]'))
    parts = parts_of(LogState(HERE, 1, lines), 3)
    assert [len(part) for part in parts] == [3, 3, 1]
    assert [line for part in parts for line in part] == list(lines)
    assert parts_of(LogState(HERE, 1), 3) == []


def test_the_shared_scripts_are_read() -> None:
    if not SHARED.is_dir():
        pytest.skip("the shared scripts are not there: ../shared/conformance is absent")
    cases = [case for path in (SHARED / "logql").glob("*.logqltest") for case in read_logql_script(path)]
    assert len(cases) >= 636
    assert sum(bool(case.fail) for case in cases) >= 68
    assert sum(bool(case.series) for case in cases) >= 551
