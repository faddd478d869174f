"""Errors as bodies, and back."""

from __future__ import annotations

import httpx
import pytest

from lakerunner.api.errors import error_body
from lakerunner.api.prometheus.response import to_prometheus_error
from lakerunner.model.errors import Absent, Corrupt, TooLong, Unavailable, error_from_body
from suites.metrics_lake import metrics_server, sample_lake


def test_an_error_of_a_kind_of_its_own_travels_as_the_kind_it_is() -> None:
    class Damaged(Corrupt):
        """Knows what is damaged."""

    assert error_body(Damaged("gone bad")) == {"kind": "Corrupt", "message": "gone bad"}
    again = error_from_body(error_body(TooLong("stopped after 3 s")))
    assert (type(again), str(again)) == (TooLong, "stopped after 3 s")


def test_a_segment_that_cannot_be_read_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    lost = Absent("the local store holds no object db/x.parquet")
    assert error_body(lost) == {"kind": "Absent", "message": str(lost)}
    assert to_prometheus_error(lost).message == str(lost)
    assert [(record.levelname, record.getMessage()) for record in caplog.records] == [
        ("ERROR", f"a segment cannot be read, `lakerunner repair` restores it: {lost}")
    ] * 2


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("/", "there is no endpoint /: GET /openapi.json lists all endpoints"),
        ("/api/v1/query", "there is no endpoint /api/v1/query: did you mean /prometheus/api/v1/query?"),
        ("/api/v1/label/job/values", "there is no endpoint /api/v1/label/job/values: did you mean "
         "/prometheus/api/v1/label/job/values?"),
        ("/loki/api/v1/none", "there is no endpoint /loki/api/v1/none: GET /openapi.json lists all endpoints"),
    ],
)  # fmt: skip
def test_a_path_that_is_not_served_says_what_may_be_meant(path: str, message: str) -> None:
    with metrics_server(sample_lake(0), 0) as url:
        answer = httpx.get(url + path)
    assert (answer.status_code, answer.json()) == (404, {"error": {"kind": "NotFound", "message": message}})


def test_a_method_that_a_path_does_not_take_names_those_that_it_takes() -> None:
    with metrics_server(sample_lake(0), 0) as url:
        answer = httpx.delete(f"{url}/prometheus/api/v1/labels")
    message = "/prometheus/api/v1/labels does not take DELETE: use GET, HEAD, POST"
    assert (answer.status_code, answer.json()) == (405, {"error": {"message": message}})


def test_what_a_dependency_is_and_where_goes_to_the_log_only(caplog: pytest.LogCaptureFixture) -> None:
    away = Unavailable("PostgreSQL does not answer", detail="PostgreSQL at 10.0.0.9:5432/lake: timeout expired")
    body = error_body(away)
    assert body == {"kind": "Unavailable", "message": "PostgreSQL does not answer"}
    assert to_prometheus_error(away).message == "PostgreSQL does not answer"
    assert [record.getMessage() for record in caplog.records] == [
        "request failed: PostgreSQL does not answer (PostgreSQL at 10.0.0.9:5432/lake: timeout expired)"
    ] * 2
