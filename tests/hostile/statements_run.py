"""Send hostile statements as A and judge every answer."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import httpx

from hostile.inputs import Statement
from hostile.two_tenants import Fault, TwoTenants, answer_text

AT_ONCE = {"duckdb": 3, "spark": 1}  # Spark takes few at once, and refuses others with 429
BUSY_SECONDS, BUSY_PAUSE_SECONDS = 240.0, 1.0
MOST_HUNG = 3
HANGS = "no answer: it hangs"
# Of 5xx, those that say why and that a client may repeat: the statement met a limit or a part that restarts.
_WITH_A_REASON = (503, 504)


def run_statements(lake: TwoTenants, given: Sequence[Statement], engine: str) -> list[Fault]:
    """Return the faults of all statements; a few run at once, as an attacker would have it.

    After a few that hang the rest is not tried: each would take its whole time too.
    """
    hung: list[Fault] = []

    def judged(one: Statement) -> list[Fault]:
        if len(hung) >= MOST_HUNG:
            return [Fault(one.place, "not tried: others hang")]
        found = faults_of(lake, one, engine)
        hung.extend(fault for fault in found if fault.what == HANGS)
        return found

    with ThreadPoolExecutor(AT_ONCE[engine]) as pool:
        return [fault for faults in pool.map(judged, given) for fault in faults]


def faults_of(lake: TwoTenants, statement: Statement, engine: str) -> list[Fault]:
    """Judge one: its answer may be anything expected of it, and holds nothing that A may not see."""
    place = f"{statement.place} ({engine})"
    request = statement.request(engine, lake.facts)
    sent = json.dumps(request)  # lone surrogates and all, as their escapes
    try:
        response = _ask(lake, sent, engine)
    except httpx.TimeoutException:
        return [Fault(place, HANGS, statement.text)]
    except httpx.HTTPError as error:
        return [Fault(place, f"the connection broke: {error!r}", statement.text)]
    text = answer_text(response)
    leaks = [*lake.leaks(sent, text), *(word for word in statement.never if word.lower() in text.lower())]
    found = [Fault(place, f"the answer holds {leak!r}", text) for leak in leaks]
    if not _is_expected(statement.expect, response, engine):
        what = f"expected {statement.expect}, got {response.status_code}"
        found.append(Fault(place, what, f"{text[:200]} <- {statement.text}"))
    return found


def _ask(lake: TwoTenants, sent: str, engine: str) -> httpx.Response:
    """Send it, and in Spark again while the query before it, which was stopped, is still being ended."""
    deadline = time.monotonic() + BUSY_SECONDS
    headers = lake.headers(lake.a, "reader") | {"content-type": "application/json"}
    while True:
        response = lake.http.post("/api/v1/sql", content=sent, headers=headers)
        if engine == "duckdb" or response.status_code != 429 or time.monotonic() > deadline:
            return response
        time.sleep(BUSY_PAUSE_SECONDS)


def _is_expected(expect: str, response: httpx.Response, engine: str) -> bool:
    """Judge the status. Spark knows less of the language, and says so; its limits are others than DuckDB's."""
    status = response.status_code
    if engine == "spark" and (expect == "413" or "engine=spark" in _message(response)):
        expect = "any"
    match expect:
        case "rows":
            return status == 200
        case "refused":
            return 400 <= status < 500 and status != 429
        case "413":
            return status == 413
        case "late":
            return status == 400 and "limit query_seconds" in _message(response)
    return status < 500 or (status in _WITH_A_REASON and len(_message(response)) > 0)


def _message(response: httpx.Response) -> str:
    try:
        return str(response.json()["error"]["message"])
    except (ValueError, KeyError, TypeError):
        return ""
