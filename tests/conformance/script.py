"""Parse PromQL scripts: `load`, `clear`, `eval` and what is expected of each. `disable promql-delayed-name-removal`,
which holds up to the end of the script, is our own addition.

Comes in: the text of a script. Goes out: its cases, each with its data. What always holds: a state is everything loaded
since the last `clear`; consecutive cases without a `load` between them share theirs.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any

from conformance.classic import as_native
from conformance.notation import Point, ScriptError, duration_ms, parse_number, parse_series, parse_starts, unquoted
from lakerunner.model.labels import Labels, labels_text
from lakerunner.series.histograms.histogram import Histogram
from lakerunner.series.values import Steps


@dataclass(frozen=True)
class Sample:
    """`time` and `start` in ms; a start of 0 is unknown."""

    time: int
    value: float | Histogram
    start: int = 0


@dataclass(frozen=True)
class State:
    """The loaded data: the samples of each series, by time. `number` counts the states of one script. `delayed_names`:
    run with Prometheus' feature promql-delayed-name-removal."""

    script: Path
    number: int
    series: Mapping[Labels, tuple[Sample, ...]] = field(default_factory=lambda: MappingProxyType({}), compare=False)
    delayed_names: bool = True


@dataclass(frozen=True)
class Expected:
    """What is expected of one level of notes: a message, or a pattern that must be found in it."""

    text: str
    is_pattern: bool

    def meets(self, message: str) -> bool:
        return re.search(self.text, message) is not None if self.is_pattern else self.text == message


ANYTHING = Expected("", is_pattern=True)


@dataclass(frozen=True)
class ScriptItem:
    """One thing that is checked, and its place: an `eval` of a script, or a row of a table."""

    path: Path
    line: int
    query: str

    @property
    def place(self) -> str:
        return f"{self.path.name}:{self.line}"


@dataclass(frozen=True)
class Eval(ScriptItem):
    """An `eval` and what is expected of it. `steps` are those of the query, in ticks of the language; `points` those of
    the expected values, which differ only for a range vector. `series` are in the order of the script."""

    steps: Steps
    instant: bool
    points: Steps | None = None
    series: Mapping[Labels, tuple[Point, ...]] = field(default_factory=dict)
    scalar: float | None = None
    string: str | None = None
    ordered: bool = False
    fail: tuple[Expected, ...] = ()
    warn: tuple[Expected, ...] = ()
    info: tuple[Expected, ...] = ()
    no_warn: bool = False
    no_info: bool = False


@dataclass(frozen=True)
class Case(Eval):
    """An `eval` of PromQL, and the samples it is asked of."""

    state: State = field(kw_only=True)

    @property
    def starts_are_unknown(self) -> bool:
        """Return whether no sample has a start time. Others cannot be sent by remote write: neither Prometheus'
        receiver nor ours uses the start times of such series."""
        return not any(sample.start for samples in self.state.series.values() for sample in samples)


_DISABLE = "disable promql-delayed-name-removal"
_LOAD = re.compile(r"load(_with_nhcb)?\s+(.+)", re.IGNORECASE)
_INSTANT = re.compile(r"eval(?:_(fail|warn|ordered|info))?\s+instant\s+at\s+(.+?)\s+(.+)")
_RANGE = re.compile(r"eval(?:_(fail|warn|info))?\s+range\s+from\s+(.+)\s+to\s+(.+)\s+step\s+(.+?)\s+(.+)")
_EXPECT = re.compile(r"expect\s+(ordered|fail|warn|no_warn|info|no_info)(?:\s+(regex|msg):(.+))?")
_EXPECT_RANGE = re.compile(r"expect range vector\s+from\s+(.+)\s+to\s+(.+)\s+step\s+(.+)")
_EXPECT_STRING = re.compile(r"expect string\s+(.+)")
_OLD_FAIL = re.compile(r"expected_fail_(message|regexp)\s+(.+)")


def read_script(path: Path) -> list[Case]:
    return parse_script(path.read_text(), path)


def parse_script(text: str, path: Path) -> list[Case]:
    lines = [line.strip() for line in text.split("\n")]
    return _Reader(path, ["" if line.startswith("#") else line for line in lines]).cases()


class _Reader:
    """Reads the lines once. `_line` is the next one."""

    def __init__(self, path: Path, lines: list[str]) -> None:
        self._path, self._lines, self._line = path, lines, 0
        self._state = State(path, 0)
        self._delayed_names = True
        self._cases: list[Case] = []

    def cases(self) -> list[Case]:
        while self._line < len(self._lines):
            line = self._lines[self._line]
            self._line += 1
            if not line:
                continue
            try:
                self._command(line)
            except (ScriptError, ValueError, KeyError) as problem:
                raise ScriptError(f"{self._path}:{self._line}: {problem}") from problem
        return self._cases

    def _command(self, line: str) -> None:
        if line.lower() == "clear":
            self._next({})
        elif line == _DISABLE:
            self._delayed_names = False
            self._next(self._state.series)
        elif found := _LOAD.fullmatch(line):
            self._load(duration_ms(found[2]), bool(found[1]))
        elif found := _INSTANT.fullmatch(line):
            self._eval(found[1], found[3], Steps(at := duration_ms(found[2]), at), instant=True)
        elif found := _RANGE.fullmatch(line):
            steps = Steps(duration_ms(found[2]), duration_ms(found[3]), duration_ms(found[4]))
            self._eval(found[1], found[5], steps, instant=False)
        else:
            raise ScriptError(f"neither load, clear nor eval: {line}")

    def _block(self) -> Iterator[str]:
        """Return the lines up to the next empty one."""
        while self._line < len(self._lines) and (line := self._lines[self._line]):
            self._line += 1
            yield line

    # load

    def _load(self, step: int, with_native: bool) -> None:
        loaded: dict[Labels, list[Sample]] = {}
        starts: tuple[Labels, list[int | None]] | None = None
        for line in self._block():
            if of_starts := parse_starts(line):
                if starts is not None:
                    raise ScriptError(f"no samples for the start times of {labels_text(starts[0])}")
                starts = of_starts
                continue
            labels, points = parse_series(line)
            offsets: list[int | None] = [None] * len(points) if starts is None else starts[1]
            if len(offsets) != len(points) or (starts is not None and starts[0] != labels):
                raise ScriptError(f"start times are not those of {labels_text(labels)}")
            starts = None
            loaded[labels] = [
                Sample(n * step, point.value, 0 if offset is None else n * step + offset)
                for n, (point, offset) in enumerate(zip(points, offsets, strict=True))
                if point.value is not None
            ]
        if starts is not None:
            raise ScriptError(f"no samples for the start times of {labels_text(starts[0])}")
        if with_native:
            plain = {labels: {one.time: one.value for one in samples} for labels, samples in loaded.items()}
            for labels, at in as_native(plain).items():
                loaded.setdefault(labels, []).extend(Sample(time, histogram) for time, histogram in at.items())
        self._add(loaded)

    def _add(self, loaded: Mapping[Labels, list[Sample]]) -> None:
        series = dict(self._state.series)
        for labels, samples in loaded.items():
            by_time = {one.time: one for one in (*series.get(labels, ()), *samples)}
            series[labels] = tuple(by_time[time] for time in sorted(by_time))
        self._next(series)

    def _next(self, series: Mapping[Labels, tuple[Sample, ...]]) -> None:
        self._state = State(self._path, self._state.number + 1, MappingProxyType(dict(series)), self._delayed_names)

    # eval

    def _eval(self, mode: str | None, query: str, steps: Steps, *, instant: bool) -> None:
        place = self._line
        expected = _Expectations()
        if mode:
            expected.old_mode(mode)
        for line in self._block():
            if expected.read(line, many=not instant or expected.points is not None):
                break
        if expected.points is not None:
            steps = Steps(expected.points.end, expected.points.end)
        self._cases.append(
            Case(
                self._path,
                place,
                query,
                steps,
                instant,
                expected.points or steps,
                **expected.said(),
                state=self._state,
            )
        )


class _Expectations:
    """The lines after an `eval`, as they are read."""

    def __init__(self) -> None:
        self.points: Steps | None = None
        self._said: dict[str, object] = {}
        self._series: dict[Labels, tuple[Point, ...]] = {}

    def said(self) -> dict[str, Any]:
        if (self._said.get("no_warn") and "warn" in self._said) or (self._said.get("no_info") and "info" in self._said):
            raise ScriptError("expects notes of a level, and none of it")
        return {**self._said, "series": self._series}

    def old_mode(self, mode: str) -> None:
        self._said[mode] = True if mode == "ordered" else (ANYTHING,)

    def read(self, line: str, *, many: bool) -> bool:
        """Read a line; return whether it is the last possible one."""
        readers: tuple[tuple[re.Pattern[str], Callable[[re.Match[str]], None]], ...] = (
            (_EXPECT_RANGE, self._range),
            (_EXPECT_STRING, self._string),
            (_EXPECT, self._expect),
        )
        if "fail" in self._said and (found := _OLD_FAIL.fullmatch(line)):
            self._said["fail"] = (Expected(found[2].strip(), is_pattern=found[1] == "regexp"),)
            return True
        for pattern, reader in readers:
            if found := pattern.fullmatch(line):
                reader(found)
                return False
        if line.split()[0] == "expect":
            raise ScriptError(f"nothing that can be expected: {line}")
        try:
            self._said["scalar"] = parse_number(line)
            return True
        except ValueError:
            pass
        labels, points = parse_series(line)
        if len(points) > 1 and not many:
            raise ScriptError(f"several values of an instant: {line}")
        self._series[labels] = tuple(points)
        return False

    def _range(self, found: re.Match[str]) -> None:
        self.points = Steps(duration_ms(found[1]), duration_ms(found[2]), duration_ms(found[3]))

    def _string(self, found: re.Match[str]) -> None:
        self._said["string"] = unquoted(found[1])

    def _expect(self, found: re.Match[str]) -> None:
        what, how, text = found.groups()
        if what in ("ordered", "no_warn", "no_info"):
            self._said[what] = True
            return
        one = Expected(text.strip(), is_pattern=how == "regex") if how else ANYTHING
        before = self._said.get(what, ())
        if what == "fail" and before:
            raise ScriptError("expects to fail twice")
        self._said[what] = (*before, one)  # type: ignore[misc]
