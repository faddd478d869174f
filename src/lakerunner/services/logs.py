"""Structured logs: a constant sentence plus fields, one line per unit of work, on standard error.

A terminal gets readable lines, anything else gets JSON. A secret is never a field: callers pass names and counts.
"""

from __future__ import annotations

import logging
import sys
from datetime import UTC, datetime
from typing import TextIO

import orjson

from lakerunner.model.display import escape_controls

_FIELDS = "lakerunner_fields"
_MILESTONE = "lakerunner_milestone"


class Log:
    """A logger with fields: `Log("ingest").info("box ingested", rows=10)`."""

    def __init__(self, name: str) -> None:
        self._logger = logging.getLogger(f"lakerunner.{name}")

    def debug(self, sentence: str, **fields: object) -> None:
        self._logger.debug(sentence, extra={_FIELDS: fields})

    def info(self, sentence: str, **fields: object) -> None:
        self._logger.info(sentence, extra={_FIELDS: fields})

    def milestone(self, sentence: str, **fields: object) -> None:
        """Write an info line for machines; a person at the terminal sees commands/terminal/screen.py instead."""
        self._logger.info(sentence, extra={_FIELDS: fields, _MILESTONE: True})

    def warning(self, sentence: str, **fields: object) -> None:
        self._logger.warning(sentence, extra={_FIELDS: fields})

    def error(self, sentence: str, *, trace: bool = False, **fields: object) -> None:
        self._logger.error(sentence, exc_info=trace, extra={_FIELDS: fields})


def configure_logs(level: str, stream: TextIO = sys.stderr) -> None:
    """Send our lines to the stream. Libraries log warnings and errors only."""
    handler = logging.StreamHandler(stream)
    if stream.isatty():
        handler.setFormatter(_Readable())
        handler.addFilter(lambda record: not hasattr(record, _MILESTONE))
    else:
        handler.setFormatter(_Json())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(logging.WARNING)
    logging.getLogger("lakerunner").setLevel(level.upper())


def _split_record(record: logging.LogRecord) -> tuple[str, str, dict[str, object]]:
    moment = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    return moment, record.name.removeprefix("lakerunner."), getattr(record, _FIELDS, {})


class _Json(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        moment, name, fields = _split_record(record)
        line = {
            "time": moment,
            "level": record.levelname.lower(),
            "part": name,
            "message": record.getMessage(),
        }
        if record.exc_info:
            line["trace"] = self.formatException(record.exc_info)
        return orjson.dumps({**line, **fields}, default=str, option=orjson.OPT_NON_STR_KEYS).decode()


class _Readable(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        moment, name, fields = _split_record(record)
        pairs = "".join(f" {key}={value}" for key, value in fields.items())
        trace = "\n" + self.formatException(record.exc_info) if record.exc_info else ""
        return escape_controls(
            f"{moment[11:23]} {record.levelname.lower():7} {name}: {record.getMessage()}{pairs}{trace}"
        )
