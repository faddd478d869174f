"""The command line's client of a running lake: finds it, asks it, prints what it says.

Rows come as server-sent events, which end with `done` or `error`: an answer that breaks off is an error, never short.
"""

from __future__ import annotations

import csv
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import httpx
import orjson
from rich.console import Console
from rich.table import Table

from lakerunner.api.errors import error_from
from lakerunner.model.errors import LakerunnerError, Unavailable, UserError
from lakerunner.services.home import ADDRESS
from lakerunner.settings import Settings

_TABLE_ROWS = 10_000


@dataclass(frozen=True)
class Rows:
    """`rows` can be read once and raises where the answer breaks off."""

    columns: list[str]
    rows: Iterator[dict[str, Any]]


class Client:
    def __init__(self, url: str, key: str | None) -> None:
        headers = {"authorization": f"Bearer {key}"} if key else {}
        self.url = url
        self._http = httpx.Client(base_url=url, headers=headers, timeout=httpx.Timeout(600, connect=5))

    @classmethod
    def find(cls, settings: Settings, url: str | None, key: str | None) -> Client:
        if url:
            return cls(url.rstrip("/"), key)
        address = settings.home / ADDRESS
        try:
            return cls(address.read_text().strip(), key)
        except FileNotFoundError:
            raise Unavailable(
                f"nothing runs with home {settings.home}: start `lakerunner up --home {settings.home}`, "
                "or name a running API with --url"
            ) from None

    def sql(self, query: str) -> Rows:
        events = self._events(query)
        first = next(events)
        return Rows([column["name"] for column in first["columns"]], _rows(events))

    def objects(self, state: str | None, limit: int) -> dict[str, Any]:
        params = {"limit": str(limit), **({"state": state} if state else {})}
        return self._json("GET", "/api/v1/objects", params)

    def retry(self) -> int:
        return int(self._json("POST", "/api/v1/objects/retry", {})["retried"])

    def _json(self, method: str, path: str, params: dict[str, str]) -> dict[str, Any]:
        try:
            response = self._http.request(method, path, params=params)
        except httpx.TransportError as error:
            raise self._away(error) from error
        if response.status_code != 200:
            raise _error_in(response)
        body: dict[str, Any] = orjson.loads(response.content)
        return body

    def _events(self, query: str) -> Iterator[dict[str, Any]]:
        headers = {"accept": "text/event-stream"}
        try:
            with self._http.stream("POST", "/api/v1/sql", json={"query": query}, headers=headers) as response:
                if response.status_code != 200:
                    response.read()
                    raise _error_in(response)
                for line in response.iter_lines():
                    if line.startswith("data: "):
                        yield orjson.loads(line[6:])
        except httpx.TransportError as error:
            raise self._away(error) from error

    def _away(self, error: httpx.TransportError) -> Unavailable:
        return Unavailable(f"the API at {self.url} cannot be reached, or broke off: {error}")


def _rows(events: Iterator[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    for event in events:
        if event["type"] == "result":
            yield event["data"]
        elif event["type"] == "error":
            raise error_from(event["error"])
        elif event["type"] == "done":
            return
    raise Unavailable("the answer broke off before its end")


def _error_in(response: httpx.Response) -> LakerunnerError:
    try:
        return error_from(orjson.loads(response.content)["error"])
    except (orjson.JSONDecodeError, KeyError, TypeError):
        return Unavailable(f"the API answered {response.status_code} without saying why")


def print_answer(answer: Rows, form: str) -> None:
    """table, json, ndjson or csv, on standard output."""
    _PRINTERS[form](answer)


def print_objects(answer: dict[str, Any], form: str) -> None:
    if form == "json":
        _write(orjson.dumps(answer, option=orjson.OPT_INDENT_2) + b"\n")
        return
    names = ["state", "key", "size", "reason"]
    _print_table(Rows(names, iter(answer["objects"])))
    counts = ", ".join(f"{count} {state}" for state, count in answer["counts"].items())
    sys.stdout.write(f"{counts}\n")


def _print_table(answer: Rows) -> None:
    table = Table()
    for name in answer.columns:
        table.add_column(name, overflow="fold")
    count = 0
    for row in answer.rows:
        count += 1
        if count > _TABLE_ROWS:
            raise UserError(f"more than {_TABLE_ROWS} rows are no table: add a LIMIT, or use --format ndjson")
        table.add_row(*(_cell(row.get(name)) for name in answer.columns))
    console = Console(width=None if sys.stdout.isatty() else 200)
    console.print(table)
    console.print(f"{count} row{'' if count == 1 else 's'}", highlight=False)


def _print_json(answer: Rows) -> None:
    _write(b"[")
    for number, row in enumerate(answer.rows):
        _write((b",\n " if number else b"\n ") + orjson.dumps(row))
    _write(b"\n]\n")


def _print_ndjson(answer: Rows) -> None:
    for row in answer.rows:
        _write(orjson.dumps(row) + b"\n")


def _print_csv(answer: Rows) -> None:
    writer = csv.writer(sys.stdout, lineterminator="\n")
    writer.writerow(answer.columns)
    for row in answer.rows:
        writer.writerow([_cell(row.get(name)) for name in answer.columns])


_PRINTERS = {"table": _print_table, "json": _print_json, "ndjson": _print_ndjson, "csv": _print_csv}


def _cell(value: Any) -> str:
    if value is None:
        return ""
    return value if isinstance(value, str) else orjson.dumps(value).decode()


def _write(data: bytes) -> None:
    sys.stdout.buffer.write(data)
    sys.stdout.flush()
