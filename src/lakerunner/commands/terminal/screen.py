"""What a running process shows on the terminal: one line while it starts, then where to push, how to query and where
the guide is, and `stopped` at the end. Everything else is in the logs (services/logs.py)."""

from __future__ import annotations

import shlex
from collections.abc import Collection, Mapping
from typing import TextIO
from urllib.parse import unquote

from lakerunner.api.errors import PROMETHEUS_ROOT
from lakerunner.model.display import escape_controls
from lakerunner.model.organization import DEFAULT_ORGANIZATION
from lakerunner.model.source import RAW_PREFIX
from lakerunner.services.ground import without_secrets
from lakerunner.settings import Settings

GUIDE = "docs/guides/operate.md"
_QUESTION = "select service_name, count(*) from logs group by 1"
_CLEAR_LINE = "\r\x1b[K"
_WIDTH = 14


class TerminalScreen:
    """Writes to the terminal. Progress is one line that each step overwrites; without a terminal it is not written."""

    def __init__(self, output: TextIO) -> None:
        self._output = output
        self._clear = ""

    def progress(self, sentence: str) -> None:
        if self._output.isatty():
            self._write(f"{self._clear}{escape_controls(sentence)} ...")
            self._clear = _CLEAR_LINE

    def ready(self, settings: Settings, names: Collection[str], url: str, doors: Mapping[str, str]) -> None:
        self.show(ready_text(settings, names, url, doors))

    def show(self, text: str) -> None:
        self._write(f"{self._clear}{escape_controls(text)}\n")
        self._clear = ""

    def report(self, text: str) -> None:
        """Write a line about work in the background, from any thread. A terminal does not get it: it may have an
        unfinished line, of ours or a progress bar of the demo."""
        if not self._output.isatty():
            self._write(f"{escape_controls(text)}\n")

    def clear(self) -> None:
        """Erase the progress line, before something else writes."""
        self._write(self._clear)
        self._clear = ""

    def _write(self, text: str) -> None:
        self._output.write(text)
        self._output.flush()


def ready_text(settings: Settings, names: Collection[str], url: str, doors: Mapping[str, str]) -> str:
    """Return what a process of these parts shows when it is up. `doors` are the addresses besides the HTTP API."""
    lines: list[tuple[str, str]] = []
    if "pubsub" in names:
        files = f"{without_secrets(settings.store_url)}/{RAW_PREFIX}{DEFAULT_ORGANIZATION.name}/NAME/"
        if files.startswith("file://"):
            files = shlex.quote(unquote(files.removeprefix("file://")))
        lines += doors.items()
        lines.append(("remote write", f"{url}/api/v1/write"))
        lines.append(("Loki", f"{url}/loki/api/v1/push"))
        lines.append(("files", files))
    if "query-api" in names:
        lines.append(("Grafana", f"{url}{PROMETHEUS_ROOT} (as a data source of type Prometheus)"))
        lines.append(("ask", f'lakerunner sql --home {shlex.quote(str(settings.home))} "{_QUESTION}"'))
    lines.append(("guide", GUIDE))
    who = "lakerunner" if len(names) > 1 else f"lakerunner {next(iter(names))}"
    return "\n".join((f"{who} is ready at {url}", *(f"  {name:{_WIDTH}}{what}" for name, what in lines)))
