"""The command line's client of a running lake: find it and send it requests."""

from __future__ import annotations

import re
import shlex
import ssl
import sys
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import orjson

from lakerunner.api.tls import pinning, trusting
from lakerunner.commands.terminal.show import AnswerEnd, ByteOutput, OnProgress, Query, SqlAnswer
from lakerunner.model.errors import KINDS, LakerunnerError, Position, Unavailable, UserError, error_from_body
from lakerunner.services.home import ADDRESS, CERTIFICATE, NoLake, holder_of, token_in
from lakerunner.settings import Settings

# httpx imports its own command line, which imports rich and pygments: a third of the start of `lakerunner promql`. It
# works without that module if it cannot be imported.
sys.modules.setdefault("httpx._main", None)  # type: ignore[arg-type]

import httpx  # noqa: E402 after the line above

_DEGRADED = "lakerunner-degraded"
_WARNINGS = "lakerunner-warnings"
_JSON = {"content-type": "application/json"}
_SQL, _PROMQL, _PROMETHEUS = "/api/v1/sql", "/api/v1/metrics/query", "/prometheus/api/v1"
_LOKI, _LOGS = "/loki/api/v1", "/api/v1/logs"
_BY_KIND = {"x-loki-response-encoding-flags": "categorize-labels"}
_PLAIN = "text/plain"
_PLACE = re.compile(r"\bline (\d+), col (\d+)\b")


class Client:
    """A client of the HTTP API of a lake."""

    def __init__(
        self, url: str, key: str | None, trust: ssl.SSLContext | None = None, home: Path | None = None
    ) -> None:
        """`trust` verifies an https server, by default by the CA certificates of the system. `home` is the directory
        that the URL was read from."""
        headers = {"authorization": f"Bearer {key}"} if key else {}
        self.url = url
        self.headers = headers
        self._home = home
        self.ssl = (trust or trusting("")) if url.startswith("https:") else None
        verify = self.ssl or False
        self._http = httpx.Client(base_url=url, headers=headers, timeout=httpx.Timeout(600, connect=5), verify=verify)

    @classmethod
    def find(cls, settings: Settings, url: str | None, key: str | None) -> Client:
        """Return a client of this URL, or of the lake that runs with the home of the settings."""
        if url:
            return cls(url.rstrip("/"), key, trusting(settings.tls_ca))
        try:
            return cls.at_home(settings.home, key)
        except FileNotFoundError:
            if not settings.home.is_dir():
                raise NoLake(settings.home) from None
            raise _nothing_runs(settings.home) from None

    @classmethod
    def at_home(cls, home: Path, key: str | None = None) -> Client:
        """Return a client of the lake that runs with this home; raise FileNotFoundError if none does.

        The lake wrote its address, token and certificate there: so the client may send the token, and accepts only
        that certificate.
        """
        url = (home / ADDRESS).read_text().strip()
        trust = pinning(home / CERTIFICATE) if url.startswith("https:") else None
        return cls(url, key or token_in(home), trust, home)

    @contextmanager
    def sql(self, query: Query, on_progress: OnProgress = lambda _done, _total: None) -> Iterator[SqlAnswer]:
        """Run a query; leaving the block before the end stops it."""
        with self._asked(_SQL, query.body() | {"format": "sse"}) as response, closing(_lines(response)) as lines:
            yield SqlAnswer(lines, on_progress)

    def download(self, query: Query, form: str, output: ByteOutput) -> AnswerEnd:
        """Write the answer in a format of the server other than events; raise if it is not complete."""
        with self._asked(_SQL, query.body() | {"format": form}) as response:
            try:
                for piece in response.iter_bytes():
                    output.write(piece)
            except httpx.RemoteProtocolError as error:
                raise Unavailable(
                    f"the query failed while its answer was sent, and the {form} is cut off: use ndjson "
                    "to see the reason"
                ) from error
            warnings = response.headers.get(_WARNINGS)
            return AnswerEnd(degraded=response.headers.get(_DEGRADED), warnings=(warnings,) if warnings else ())

    @contextmanager
    def promql(self, body: Mapping[str, Any]) -> Iterator[Iterator[dict[str, Any]]]:
        """Yield the events of the answer, which ends with `done` or `error`. Leaving the block before stops the
        query."""
        with self._asked(_PROMQL, body) as response, closing(_lines(response)) as lines:
            yield (orjson.loads(line[6:]) for line in lines if line.startswith(b"data: "))

    def download_promql(self, body: Mapping[str, Any]) -> bytes:
        """Return the answer as JSON."""
        with self._asked(_PROMQL, {**body, "format": "json"}) as response:
            return response.read()

    def explain_promql(self, body: Mapping[str, Any], *, analyze: bool) -> list[str]:
        """Return the lines of the plan."""
        with self._asked("/api/v1/metrics/explain", {**body, "analyze": analyze}) as response:
            lines: list[str] = orjson.loads(response.read())["plan"]
            return lines

    def logql(self, endpoint: str, parameters: Mapping[str, str], *, by_kind: bool = False) -> dict[str, Any]:
        """Return the answer of Loki's API. They are sent as a form, because a query may be longer than a URL may be.
        `by_kind`: the labels of entries are told apart by kind."""
        return self._json("POST", f"{_LOKI}/{endpoint}", {}, parameters, _BY_KIND if by_kind else {})

    def explain_logql(self, endpoint: str, parameters: Mapping[str, str], how: str) -> str:
        """Return the lines of the plan; `how` is plan or analyze."""
        return self._content("POST", f"{_LOKI}/{endpoint}", {}, {**parameters, "explain": how}).decode()

    def log_context(self, parameters: Mapping[str, str]) -> dict[str, Any]:
        """Return the lines before and after a line of a stream."""
        return self._json("GET", f"{_LOGS}/context", parameters)

    @contextmanager
    def exported_lines(self, parameters: Mapping[str, str]) -> Iterator[Iterator[dict[str, Any]]]:
        """Yield all lines of a log query as they come. Leaving the block before the end stops the export."""
        with self._exported({**parameters, "format": "ndjson"}) as response, closing(_lines(response)) as lines:
            yield map(_exported_line, lines)

    def download_lines(self, parameters: Mapping[str, str], output: ByteOutput) -> None:
        """Write all lines of a log query in a format of the server; raise if they are not complete."""
        with self._exported(parameters) as response:
            for piece in response.iter_bytes():
                output.write(piece)

    @contextmanager
    def _exported(self, parameters: Mapping[str, str]) -> Iterator[httpx.Response]:
        try:
            with self._http.stream("POST", f"{_LOGS}/export", data=dict(parameters)) as response:
                if response.status_code != 200:
                    response.read()
                    raise _error_in(response)
                yield response
        except httpx.TransportError as error:
            raise self._away(error) from error

    def tables(self) -> list[dict[str, Any]]:
        tables: list[dict[str, Any]] = self._json("GET", "/api/v1/sql/tables", {})["tables"]
        return tables

    def objects(self, filters: Mapping[str, Any]) -> dict[str, Any]:
        params = {name: str(value) for name, value in filters.items() if value is not None}
        return self._json("GET", "/api/v1/objects", params)

    def rejects(self, key: str) -> dict[str, Any]:
        return self._json("GET", "/api/v1/objects/rejects", {"key": key})

    def dismiss(self, key: str) -> int:
        return int(self._json("POST", "/api/v1/objects/dismiss", {"key": key})["dismissed"])

    def metric_names(self, start: str, end: str) -> list[str]:
        """Return the names of metrics that have points between these times."""
        found = self._json("GET", f"{_PROMETHEUS}/label/__name__/values", {"start": start, "end": end})
        names: list[str] = found["data"]
        return names

    def cardinality(self, params: Mapping[str, str]) -> dict[str, Any]:
        return self._json("GET", "/api/v1/metrics/cardinality", params)

    def retry(self) -> int:
        return int(self._json("POST", "/api/v1/objects/retry", {})["retried"])

    def work(self) -> dict[str, Any]:
        return self._json("GET", "/api/v1/work", {})

    def requeue(self, ids: Sequence[str]) -> dict[str, Any]:
        return self._json("POST", "/api/v1/requeue", {"id": list(ids)} if ids else {})

    def _json(
        self,
        method: str,
        path: str,
        params: Mapping[str, str | list[str]],
        form: Mapping[str, str] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> dict[str, Any]:
        body: dict[str, Any] = orjson.loads(self._content(method, path, params, form, headers))
        return body

    def _content(
        self,
        method: str,
        path: str,
        params: Mapping[str, str | list[str]],
        form: Mapping[str, str] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> bytes:
        try:
            response = self._http.request(method, path, params=params, data=form, headers=headers)
        except httpx.TransportError as error:
            raise self._away(error) from error
        if response.status_code != 200:
            raise _error_in(response)
        return response.content

    @contextmanager
    def _asked(self, path: str, body: Mapping[str, Any]) -> Iterator[httpx.Response]:
        try:
            with self._http.stream("POST", path, content=orjson.dumps(dict(body)), headers=_JSON) as response:
                if response.status_code != 200:
                    response.read()
                    raise _error_in(response)
                yield response
        except httpx.TransportError as error:
            raise self._away(error) from error

    def _away(self, error: httpx.TransportError) -> Unavailable:
        if self._home and not holder_of(self._home):  # a killed lake leaves its address behind
            return _nothing_runs(self._home)
        reason = re.sub(r"^\[Errno -?\d+\] ", "", str(error))
        return Unavailable(f"the API at {self.url} cannot be reached, or broke off: {reason}")


def _nothing_runs(home: Path) -> Unavailable:
    return Unavailable(
        f"nothing runs with home {home}: start `lakerunner up --home {shlex.quote(str(home))}`, "
        "or name a running API with --url"
    )


def _lines(response: httpx.Response) -> Generator[bytes]:
    """Split at line feeds only: texts in rows may contain other characters that count as line ends elsewhere."""
    rest = b""
    for piece in response.iter_bytes():
        *lines, rest = (rest + piece).split(b"\n")
        yield from lines


def _exported_line(line: bytes) -> dict[str, Any]:
    """Read a line of an export; the last one of an export that failed says why."""
    found: dict[str, Any] = orjson.loads(line)
    if "line" not in found:
        raise error_from_body(found["error"])
    return found


def _error_in(response: httpx.Response) -> LakerunnerError:
    if response.headers.get("content-type", "").startswith(_PLAIN) and response.text.strip():
        return plain_error(response.status_code, response.text.strip())
    try:
        return error_from_body(orjson.loads(response.content)["error"])
    except (orjson.JSONDecodeError, KeyError, TypeError):
        return Unavailable(f"the API returned {response.status_code} without a reason")


def plain_error(status: int, message: str) -> LakerunnerError:
    """Return the error of Loki's API, which is text. A place in the query is part of that text already."""
    error = next((kind for kind in KINDS.values() if kind.http_status == status), Unavailable)(message)
    if isinstance(error, UserError) and (place := _PLACE.search(message)):
        error.position = Position(int(place[1]), int(place[2]))
    return error
