"""Errors as bodies, and back."""

from __future__ import annotations

import pytest

from lakerunner.api.errors import error_body
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
        "request failed: PostgreSQL does not answer (PostgreSQL at 10.0.0.9:5432/lake: timeout expired)"
    ] * 2
