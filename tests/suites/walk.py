"""Scripts of what a person types at a terminal and what it shows, in plain text: how one is read, run and rewritten.

    # words             a comment
    $ command           bash runs it once; lines that begin with "> " continue it
    ~ command           the same, again and again until it shows what is expected: data arrives some seconds later
    & command           is started on a terminal of its own and goes on; the terminal must come to show what is expected
    ^C                  presses Ctrl-C there. Expected is everything that the terminal has shown since the start screen
    ^KILL               ends it with kill -9; expected is the same

The lines below one of these are what it shows, both outputs together. `...` stands for anything within a line, `[2]` at
the end is an exit code that is not 0. `Walk.words` has what differs from run to run (ports, directories, times) and how
it reads in a script. Lines of a log have no time and are sorted; the summary of a minute may come or not.
"""

from __future__ import annotations

import os
import pty
import re
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

_SECONDS = 240.0  # for whatever is waited for, on a busy machine
_MARKS = ("$ ", "~ ", "& ", "^", "# ")
_ERASED = re.compile(r"^.*\x1b\[K")  # progress, which the next line has overwritten
_LOG_LINE = re.compile(r"^\d\d:\d\d:\d\d\.\d{3} (debug|info|warning|error) +")
_SUMMARY = re.compile(r"^info [\w-]+: .* in the last minute ")


@dataclass(frozen=True)
class Step:
    """`mark`: how its first line begins. `line`: the number of that line."""

    mark: str
    text: str
    expected: tuple[str, ...]
    line: int


@dataclass
class Walk:
    """`words`: pattern to what it reads as in a script, in this order. `types`: word of a script to what is typed."""

    directory: Path
    environment: Mapping[str, str]
    words: Mapping[str, str]
    types: Mapping[str, str]
    seconds: float = _SECONDS
    terminal: Terminal | None = field(default=None, init=False)

    def run(self, step: Step) -> tuple[str, ...]:
        """Do what the step says; what was shown."""
        command = step.text
        for word, typed in self.types.items():
            command = command.replace(word, typed)
        match step.mark:
            case "$":
                return self._shell(command)
            case "~":
                return self._until(step, lambda: self._shell(command), self.seconds)
            case "&":
                self.terminal = terminal = Terminal(command, self.directory, self.environment)
                shown = self._until(step, lambda: self._read(terminal.text()), _SECONDS)
                terminal.forget()
                return shown
        return self._end(command)

    def close(self) -> None:
        if self.terminal:
            self.terminal.end(signal.SIGTERM)

    def _shell(self, command: str) -> tuple[str, ...]:
        done = subprocess.run(
            ["bash", "-c", command],
            cwd=self.directory,
            env=dict(self.environment),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=_SECONDS,
            check=False,
        )
        code = f"\n[{done.returncode}]" if done.returncode else ""
        return self._read(done.stdout.decode(errors="replace").rstrip("\n") + code)

    def _until(self, step: Step, show: Callable[[], tuple[str, ...]], seconds: float) -> tuple[str, ...]:
        deadline = time.monotonic() + seconds
        while not matches(shown := show(), step.expected) and time.monotonic() < deadline:
            if self.terminal and self.terminal.has_ended():
                return show()
            time.sleep(0.1)
        return shown

    def _end(self, key: str) -> tuple[str, ...]:
        assert self.terminal, f"{key}: nothing runs"
        self.terminal.end(signal.SIGKILL if key == "KILL" else signal.SIGINT)
        shown, self.terminal = self._read(self.terminal.text()), None
        log = sorted(_LOG_LINE.sub(r"\1 ", line) for line in shown if _LOG_LINE.match(line))
        others = [line for line in shown if not _LOG_LINE.match(line)]
        return (*(line for line in log if not _SUMMARY.match(line)), *others)

    def _read(self, text: str) -> tuple[str, ...]:
        for pattern, word in self.words.items():
            text = re.sub(pattern, word, text)
        return tuple(text.split("\n")) if text else ()


class Terminal:
    """A program on a terminal of its own, in a session of its own: what is shown is read as it comes."""

    def __init__(self, command: str, directory: Path, environment: Mapping[str, str]) -> None:
        self._ours, theirs = pty.openpty()
        self._process = subprocess.Popen(
            ["bash", "-c", f"exec {command}"],
            cwd=directory,
            env=dict(environment),
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            start_new_session=True,
        )
        os.close(theirs)
        self._shown, self._forgotten = bytearray(), 0
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def text(self) -> str:
        """What is shown since `forget`, as it stands there at the end."""
        lines = bytes(self._shown[self._forgotten :]).decode(errors="replace").replace("\r\n", "\n").split("\n")
        return "\n".join(_ERASED.sub("", line) for line in lines).rstrip("\n")

    def forget(self) -> None:
        self._forgotten = len(self._shown)

    def has_ended(self) -> bool:
        return self._process.poll() is not None

    def end(self, number: int) -> None:
        """End it as a terminal does: every process of the group gets the signal. -9 is for the program alone."""
        if not self.has_ended():
            (os.kill if number == signal.SIGKILL else os.killpg)(self._process.pid, number)
        self._process.wait(_SECONDS)
        if number != signal.SIGKILL:  # its children may have the terminal a little longer
            self._reader.join(_SECONDS)

    def _read(self) -> None:
        try:
            while data := os.read(self._ours, 65_536):
                self._shown += data
        except OSError:  # no process has the terminal any more
            pass
        os.close(self._ours)


def steps(script: str) -> Iterator[Step]:
    """Read the steps of a script, in their order."""
    lines = script.splitlines()
    starts = [number for number, line in enumerate(lines) if line.startswith(_MARKS)]
    for start, end in zip(starts, [*starts[1:], len(lines)], strict=True):
        first, *rest = lines[start:end]
        while rest and not rest[-1]:
            rest.pop()
        mark = first[0]
        typed = [first[1:].strip()]
        while rest and rest[0].startswith("> "):
            typed.append(rest.pop(0)[2:])
        if mark != "#":
            yield Step(mark, "\n".join(typed), tuple(rest), start + 1)


def matches(shown: tuple[str, ...], expected: tuple[str, ...]) -> bool:
    return len(shown) == len(expected) and all(map(_is_line, shown, expected))


def rewritten(script: str, shown: Mapping[int, tuple[str, ...]]) -> str:
    """The script with what was shown by the steps of these lines in the place of what was expected; lines with `...`
    stay where they still match."""
    lines = script.splitlines()
    for step in reversed(list(steps(script))):
        if step.line in shown:
            patterns = [line for line in step.expected if "..." in line]
            begin = step.line + step.text.count("\n")
            lines[begin : begin + len(step.expected)] = [
                next((pattern for pattern in patterns if _is_line(line, pattern)), line) for line in shown[step.line]
            ]
    return "\n".join(lines) + "\n"


def _is_line(shown: str, expected: str) -> bool:
    return re.fullmatch(".*".join(map(re.escape, expected.split("..."))), shown) is not None
