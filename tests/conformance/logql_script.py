"""Parse LogQL scripts: `load`, `clear`, `eval` and what is expected of each.

Comes in: the text of a script. Goes out: its cases, each with the lines loaded since the last `clear`. What always
holds: times are in ns since 1970; those of a script count from EPOCH, because a line at 0 cannot be pushed. What the
grammar does not know is refused, never skipped.

An indented line belongs to the command above it. Expected lines of a log query, which may be asked by `select`, `range`
or `instant`, are written as in `load`. Our own additions: `limit` and `interval` behind the direction of a `select`;
`[metadata ...]` and `[parsed ...]` behind an expected line, which state its labels by kind: `{...}` is then its stream.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from fractions import Fraction
from pathlib import Path
from typing import Any, Literal

from conformance.answer import LogEntry
from conformance.notation import Point, ScriptError, parse_number, parse_pairs, parse_points
from conformance.script import ANYTHING, Eval, Expected
from lakerunner.model.labels import Labels
from lakerunner.series.values import Steps

EPOCH = 1_767_225_600_000_000_000  # 2026-01-01
_LIMIT = 1000  # of a log query that states none
_LOOK_BACK = 30_000_000_000  # of a log query at an instant

Direction = Literal["forward", "backward"]


@dataclass(frozen=True)
class LogState:
    """The loaded lines, in the order of the script. `number` counts the states of one script."""

    script: Path
    number: int
    lines: tuple[LogEntry, ...] = field(default=(), compare=False)


@dataclass(frozen=True)
class LogCase(Eval):
    """An `eval` of LogQL. `lines` are expected of a log query; `by_kind`: their labels are compared by kind, otherwise
    all are in `stream`. `selects`: it asks for lines, whether or not its text can be parsed."""

    state: LogState = field(kw_only=True)
    lines: tuple[LogEntry, ...] = ()
    by_kind: bool = False
    direction: Direction = "forward"
    limit: int = _LIMIT
    interval: int = 0
    selects: bool = False

    @property
    def window(self) -> Steps:
        """Return [start, end) of a log query."""
        if self.instant:
            return Steps(self.steps.start - _LOOK_BACK, self.steps.start)
        return Steps(self.steps.start, self.steps.end)


_INSTANT = re.compile(r"eval\s+instant\s+at\s+(\S+)\s+(.+)")
_RANGE = re.compile(r"eval\s+range\s+from\s+(\S+)\s+to\s+(\S+)\s+step\s+(\S+)\s+(.+)")
_SELECT = re.compile(
    r"eval\s+select\s+from\s+(\S+)\s+to\s+(\S+)\s+(forward|backward)"
    r"(?:\s+limit\s+(\d+))?(?:\s+interval\s+(\S+))?\s+(.+)"
)
_FAIL = re.compile(r"expect\s+fail(?:\s+(msg|regex):\s*(.+))?")
# Both concern Loki's own ways of running a query: ours has no way that is less exact.
_OF_LOKI = re.compile(r'skip\s+values-comparison\s+on\s+"[^"]+"|expect\s+values-toleration\s+\S+\s+on\s+"[^"]+"')
_LINE = re.compile(r'\s*(?:"([^"]*)"|`([^`]*)`)\s*@\s*(\S+)')  # no escapes
_REPEAT = re.compile(r"\s*\[repeat every\s+(\S+)\s+for\s+(\d+)\]")
_PAIRS = re.compile(r"\s*\[(metadata|parsed)((?:\s+(?:\"[^\"]*\"|[^\s\"=]+)=\"[^\"]*\")*)\s*\]")
_PAIR = re.compile(r'(?:"([^"]*)"|([^\s"=]+))="([^"]*)"')
_UNQUOTED_COMMENT = re.compile(r'((?:[^"`#]|"(?:[^"\\]|\\.)*"|`[^`]*`|["`])*)')
_DURATION = re.compile(r"(?:\d+\.?\d*|\.\d+)(?:ns|us|µs|μs|ms|s|m|h)")
_UNITS = {"ns": 1, "us": 10**3, "µs": 10**3, "μs": 10**3, "ms": 10**6, "s": 10**9, "m": 60 * 10**9, "h": 3600 * 10**9}


def read_logql_script(path: Path) -> list[LogCase]:
    return parse_logql_script(path.read_bytes().decode("utf-8", "surrogateescape"), path)


def parse_logql_script(text: str, path: Path) -> list[LogCase]:
    return _Reader(path).cases(text.split("\n"))


def go_duration(text: str) -> int:
    """Return the ns of a duration as Go writes it: 1m30s, 1.5h, -10ms, 0."""
    bare = text.removeprefix("-")
    found = _DURATION.findall(bare)
    if bare != "0" and (not found or "".join(found) != bare):
        raise ScriptError(f"{text!r} is no duration")
    ns = sum(Fraction(one.rstrip("nuµμmsh").rstrip(".")) * _UNITS[one.lstrip("0123456789.")] for one in found)
    return -int(ns) if text.startswith("-") else int(ns)


def _time(text: str) -> int:
    return EPOCH + go_duration(text)


class _Reader:
    def __init__(self, path: Path) -> None:
        self._path = path
        self._state = LogState(path, 0)

    def cases(self, lines: list[str]) -> list[LogCase]:
        found: list[LogCase] = []
        for number, command, block in _commands(lines, self._path):
            if command == "clear":
                self._next(())
            elif command == "load":
                self._next((*self._state.lines, *(entry for at, line in block for entry in self._load(at, line))))
            else:
                found.append(self._eval(number, command, block))
        return found

    def _next(self, lines: tuple[LogEntry, ...]) -> None:
        self._state = LogState(self._path, self._state.number + 1, lines)

    def _load(self, number: int, line: str) -> list[LogEntry]:
        with _at(self._path, number):
            return list(_loaded(line))

    def _eval(self, number: int, command: str, block: list[tuple[int, str]]) -> LogCase:
        with _at(self._path, number):
            case = self._question(number, command)
        expected = _Expectations()
        for at, line in block:
            with _at(self._path, at):
                expected.read(line, instant=case.instant)
        return replace(case, points=case.steps, **expected.said)

    def _question(self, number: int, command: str) -> LogCase:
        if found := _INSTANT.fullmatch(command):
            at = _time(found[1])
            return LogCase(self._path, number, found[2], Steps(at, at), True, state=self._state)
        if found := _RANGE.fullmatch(command):
            steps = Steps(_time(found[1]), _time(found[2]), go_duration(found[3]))
            return LogCase(self._path, number, found[4], steps, False, state=self._state)
        if found := _SELECT.fullmatch(command):
            steps = Steps(_time(found[1]), _time(found[2]))
            return LogCase(
                self._path,
                number,
                found[6],
                steps,
                False,
                direction="forward" if found[3] == "forward" else "backward",
                limit=int(found[4] or _LIMIT),
                interval=go_duration(found[5] or "0"),
                selects=True,
                state=self._state,
            )
        raise ScriptError(f"neither load, clear nor eval: {command}")


class _at:  # noqa: N801 used as a word
    """Adds the place to what is wrong there."""

    def __init__(self, path: Path, line: int) -> None:
        self._place = f"{path}:{line}"

    def __enter__(self) -> None: ...

    def __exit__(self, _kind: object, problem: BaseException | None, _trace: object) -> None:
        if isinstance(problem, ScriptError | ValueError):
            raise ScriptError(f"{self._place}: {problem}") from problem


def _commands(lines: list[str], path: Path) -> Iterator[tuple[int, str, list[tuple[int, str]]]]:
    """Yield the commands with their line numbers, and the lines that belong to each."""
    number, command, block = 0, "", list[tuple[int, str]]()
    for at, raw in enumerate(lines, 1):
        line = raw.strip()
        if not line or line.startswith("#"):
            continue
        if not raw[0].isspace():
            if command:
                yield number, command, block
            number, command, block = at, without_comment(line), []
        elif command in ("", "clear"):
            raise ScriptError(f"{path}:{at}: an indented line that belongs to no load or eval: {line}")
        else:
            block.append((at, line))
    if command:
        yield number, command, block


def without_comment(line: str) -> str:
    """Return the line up to a `#` that is not quoted."""
    found = _UNQUOTED_COMMENT.match(line)
    assert found is not None
    return found[1].strip()


# ---- load


def _loaded(line: str) -> Iterator[LogEntry]:
    if not line.startswith("{"):
        raise ScriptError(f"expected the labels of a stream, not {line}")
    stream, rest = parse_pairs(line)
    at, text, rest = _line_and_time(rest)
    every, count = 0, 1
    if repeat := _REPEAT.match(rest):
        every, count, rest = go_duration(repeat[1]), int(repeat[2]), rest[repeat.end() :]
    kinds, rest = _kinds(rest)
    _nothing_left(rest)
    if "parsed" in kinds or count < 1:
        raise ScriptError(f"cannot be loaded: {line}")
    for n in range(count):
        yield LogEntry(at + n * every, text.replace("{{.i}}", str(n)), tuple(stream), kinds.get("metadata", ()))


def _line_and_time(rest: str) -> tuple[int, str, str]:
    found = _LINE.match(rest)
    if found is None:
        raise ScriptError(f'expected "line" @ time, not {rest.strip()}')
    return _time(found[3]), found[1] if found[1] is not None else found[2], rest[found.end() :]


def _kinds(rest: str) -> tuple[dict[str, Labels], str]:
    """Parse `[metadata a="b"] [parsed c="d"]`; also return what follows."""
    kinds: dict[str, Labels] = {}
    while found := _PAIRS.match(rest):
        kinds[found[1]] = tuple((one[1] or one[2], one[3]) for one in _PAIR.finditer(found[2]))
        rest = rest[found.end() :]
    return kinds, rest


def _nothing_left(rest: str) -> None:
    if rest.strip() and not rest.strip().startswith("#"):
        raise ScriptError(f"nothing of this kind can follow: {rest.strip()}")


# ---- expectations


class _Expectations:
    def __init__(self) -> None:
        self.said: dict[str, Any] = {}
        self._series: dict[Labels, tuple[Point, ...]] = {}

    def read(self, line: str, *, instant: bool) -> None:
        if line.startswith("{"):
            self._result(line, instant)
            return
        line = without_comment(line)
        if found := _FAIL.fullmatch(line):
            how, text = found.groups()
            # A message is a part of the error here, unlike in PromQL's scripts.
            one = Expected(re.escape(text) if how == "msg" else text, is_pattern=True) if how else ANYTHING
            self.said["fail"] = (one,)
        elif line == "expect ordered":
            self.said["ordered"] = True
        elif line != "expect empty" and not _OF_LOKI.fullmatch(line):
            self.said["scalar"] = parse_number(line)

    def _result(self, line: str, instant: bool) -> None:
        pairs, rest = parse_pairs(line)
        if not rest.lstrip().startswith(('"', "`")):
            points = tuple(parse_points(rest.partition("#")[0].rstrip()))
            if not points or (len(points) > 1 and instant):
                raise ScriptError(f"{len(points)} values of {'an instant' if instant else 'a range'}: {line}")
            self._series[tuple(sorted(pairs))] = points
            self.said["series"] = self._series
            return
        at, text, rest = _line_and_time(rest)
        kinds, rest = _kinds(rest)
        _nothing_left(rest)
        entry = LogEntry(at, text, *map(_sorted, (pairs, kinds.get("metadata", ()), kinds.get("parsed", ()))))
        self.said["lines"] = (*self.said.get("lines", ()), entry)
        self.said["by_kind"] = self.said.get("by_kind", False) or bool(kinds)


def _sorted(pairs: Any) -> Labels:
    return tuple(sorted(pairs))


Streams = Mapping[Labels, list[tuple[Any, ...]]]


def streams_of(entries: tuple[LogEntry, ...], *, by_kind: bool) -> Streams:
    """Group entries by stream, or by all of their labels, keeping their order."""
    streams: dict[Labels, list[tuple[Any, ...]]] = {}
    for one in entries:
        if by_kind:
            streams.setdefault(one.stream, []).append((one.time, one.text, one.metadata, one.parsed))
        else:
            merged = {**dict(one.stream), **dict(one.metadata), **dict(one.parsed)}
            streams.setdefault(_sorted(merged.items()), []).append((one.time, one.text))
    return streams
