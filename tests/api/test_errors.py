"""Errors as bodies, and back."""

from __future__ import annotations

import json

import pytest
from starlette.exceptions import HTTPException
from starlette.requests import Request

from lakerunner.api.errors import error_body, on_http_exception
from lakerunner.api.prometheus_errors import refused
from lakerunner.model.errors import Corrupt, TooLong, Unavailable, error_from


def test_an_error_of_a_kind_of_its_own_travels_as_the_kind_it_is() -> None:
    class Damaged(Corrupt):
        """Knows what is damaged."""

    assert error_body(Damaged("gone bad")) == {"kind": "Corrupt", "message": "gone bad"}
    again = error_from(error_body(TooLong("stopped after 3 s")))
    assert (type(again), str(again)) == (TooLong, "stopped after 3 s")


def test_what_a_dependency_is_and_where_goes_to_the_log_only(caplog: pytest.LogCaptureFixture) -> None:
    away = Unavailable("PostgreSQL does not answer", detail="PostgreSQL at 10.0.0.9:5432/lake: timeout expired")
    body = error_body(away)
    assert body == {"kind": "Unavailable", "message": "PostgreSQL does not answer"}
    assert refused(away).message == "PostgreSQL does not answer"
    assert [record.getMessage() for record in caplog.records] == [
        "a request failed: PostgreSQL does not answer (PostgreSQL at 10.0.0.9:5432/lake: timeout expired)"
    ] * 2


@pytest.mark.parametrize(
    ("method", "path", "status", "message"),
    [
        ("GET", "/", 404, "/ is not served here; GET /openapi.json lists every endpoint"),
        (
            "GET",
            "/api/v1/query",
            404,
            "/api/v1/query is not served here: Prometheus' API is below /prometheus; "
            "GET /openapi.json lists every endpoint",
        ),
        (
            "GET",
            "/loki/api/v1/labels",
            404,
            "/loki/api/v1/labels is not served here: there is no LogQL, logs are asked for by POST /api/v1/sql; "
            "GET /openapi.json lists every endpoint",
        ),
        ("GET", "/api/v1/sql", 405, "/api/v1/sql does not take GET: use POST"),
    ],
)
def test_a_path_that_is_not_served_names_what_is(method: str, path: str, status: int, message: str) -> None:
    scope = {"type": "http", "method": method, "path": path, "headers": [], "query_string": b"query=up"}
    answer = on_http_exception(Request(scope), HTTPException(status, headers={"Allow": "POST"}))
    assert (answer.status_code, json.loads(answer.body)) == (status, {"error": {"message": message}})
