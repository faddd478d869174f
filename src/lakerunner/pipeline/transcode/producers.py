"""JSON of programs whose members mean what their names do not say: Docker, journald, Pino and Bunyan.

Comes in: a JSON object. Goes out: the same with words in the place of codes, from which fields are guessed as from any
other. What always holds: an object of another program comes back as it is.
"""

from __future__ import annotations

from typing import Any

_SYSLOG = ("emerg", "alert", "crit", "err", "warning", "notice", "info", "debug")
_PINO = {10: "trace", 20: "debug", 30: "info", 40: "warn", 50: "error", 60: "fatal"}
_STREAMS = ("stdout", "stderr")


def in_words(record: dict[str, Any]) -> dict[str, Any]:
    """Return the record as its producer means it."""
    if "__REALTIME_TIMESTAMP" in record:
        return _journald(record)
    if "log" in record:
        return _docker(record)
    if type(record.get("level")) is int and "hostname" in record and "pid" in record:
        return _pino(record)
    return record


def _journald(record: dict[str, Any]) -> dict[str, Any]:
    """Read `journalctl -o json`: a priority of syslog, and a message that is not UTF-8 as a list of its bytes."""
    priority, message = record.get("PRIORITY"), record.get("MESSAGE")
    made = dict(record)
    if isinstance(priority, str) and len(priority) == 1 and priority in "01234567" and "level" not in record:
        made["level"] = _SYSLOG[int(priority)]
    if type(message) is list and all(type(one) is int and 0 <= one < 256 for one in message):
        made["MESSAGE"] = bytes(message)
    return made


def _docker(record: dict[str, Any]) -> dict[str, Any]:
    """Read Docker's json-file: `log` is a line with its end, which is no part of the message."""
    log = record["log"]
    if isinstance(log, str) and log.endswith("\n") and "time" in record and record.get("stream") in _STREAMS:
        return {**record, "log": log.removesuffix("\n").removesuffix("\r")}
    return record


def _pino(record: dict[str, Any]) -> dict[str, Any]:
    """Read Pino and Bunyan: levels are 10 to 60."""
    word = _PINO.get(record["level"])
    return record if word is None else {**record, "level": word}
