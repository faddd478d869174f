"""Errors that quote bytes of a query that are no UTF-8 are told all the same."""

from __future__ import annotations

import json

from lakerunner.api.prometheus.response import error_response
from lakerunner.model.errors import UserError


def test_bytes_that_are_no_utf_8_come_as_a_sign_in_their_place() -> None:
    response = error_response(UserError("invalid destination label name: a\udcffz ä"))
    assert response.status_code == 400
    assert json.loads(bytes(response.body))["error"] == "invalid destination label name: a�z ä"
