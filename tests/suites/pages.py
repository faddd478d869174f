"""Command blocks of Markdown pages: which ones a page has, and how one is run.

A fenced block of the language `sh` is a command block. A comment on the line before its fence, `<!-- not run: REASON
-->`, leaves it out. A block of the language `text` right behind it holds lines that its output must contain, in their
order; `...` inside a line stands for anything.
"""

from __future__ import annotations

import re
import subprocess
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

_BLOCK = re.compile(
    r"^(?:<!-- not run: (?P<reason>[^\n]+?) -->\n)?```sh\n(?P<commands>.*?)^```\n(?:\n```text\n(?P<output>.*?)^```\n)?",
    re.MULTILINE | re.DOTALL,
)
_RUN_SECONDS = 120
_ANSWER_SECONDS = 120


@dataclass(frozen=True)
class CommandBlock:
    """`line` is that of its first command; `reason` says why it is not run, `output` is what it must print."""

    page: Path
    line: int
    commands: str
    reason: str
    output: tuple[str, ...]

    def run(self, directory: Path, environment: Mapping[str, str]) -> str:
        """Return what is wrong with it, or nothing.

        One that must print something is run again until it does: what was sent is there some seconds later.
        """
        deadline = time.monotonic() + (_ANSWER_SECONDS if self.output else 0)
        while True:
            done = subprocess.run(
                ["bash", "-euo", "pipefail", "-c", self.commands],
                cwd=directory,
                env=dict(environment),
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                timeout=_RUN_SECONDS,
                check=False,
            )
            if done.returncode == 0 and self._is_printed(done.stdout):
                return ""
            if time.monotonic() > deadline:
                return f"exit code {done.returncode}\n{self.commands}\n{done.stdout}\n{done.stderr}"
            time.sleep(0.2)

    def _is_printed(self, printed: str) -> bool:
        pattern = ".*\n".join(".*?".join(map(re.escape, line.split("..."))) for line in self.output)
        return re.search(pattern, printed, re.DOTALL) is not None


def command_blocks(page: Path) -> Iterator[CommandBlock]:
    text = page.read_text()
    for found in _BLOCK.finditer(text):
        line = text.count("\n", 0, found.start("commands")) + 1
        output = tuple((found["output"] or "").splitlines())
        yield CommandBlock(page, line, found["commands"], found["reason"] or "", output)
