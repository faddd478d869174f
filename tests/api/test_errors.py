"""Errors as bodies, and back."""

from __future__ import annotations

from lakerunner.api.errors import error_body, error_from
from lakerunner.model.errors import Corrupt, TooLong


def test_an_error_of_a_kind_of_its_own_travels_as_the_kind_it_is() -> None:
    class Damaged(Corrupt):
        """Knows what is damaged."""

    assert error_body(Damaged("gone bad")) == {"kind": "Corrupt", "message": "gone bad"}
    again = error_from(error_body(TooLong("stopped after 3 s")))
    assert (type(again), str(again)) == (TooLong, "stopped after 3 s")
