"""SHOW TABLES, DESCRIBE and SHOW COLUMNS, in every spelling; what cannot be listed is refused with its place."""

from __future__ import annotations

import pytest

from lakerunner.lakeql.statements import Listing, read_listing
from lakerunner.model.errors import UserError

LISTINGS = {
    "SHOW TABLES": Listing(),
    " -- all\n show /* the */ tables ; ": Listing(),
    "SHOW ALL TABLES": Listing(),
    "DESCRIBE": Listing(),
    "DESCRIBE logs": Listing("logs"),
    'desc "Logs";': Listing("logs"),
    "DESCRIBE TABLE metrics": Listing("metrics"),
    "show columns\nfrom spans": Listing("spans"),
    "SHOW COLUMNS IN spans": Listing("spans"),
    "SELECT 1": None,
    "FROM logs SELECT 'SHOW TABLES'": None,
    "showtables": None,
}


@pytest.mark.parametrize("text", LISTINGS)
def test_what_is_listed(text: str) -> None:
    assert read_listing(text) == LISTINGS[text]


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("DESCRIBE\n lgos", "unknown table lgos: did you mean logs? (line 2, column 2)"),
        ("SHOW COLUMNS FROM x", "unknown table x: the tables are logs, metrics, spans (line 1, column 19)"),
        (
            " DESCRIBE SELECT 1",
            "DESCRIBE is not available in this form: write SHOW TABLES, DESCRIBE logs or SHOW COLUMNS FROM logs "
            "(line 1, column 2)",
        ),
        (
            "SHOW TABLES; SELECT 1",
            "SHOW is not available in this form: write SHOW TABLES, DESCRIBE logs or SHOW COLUMNS FROM logs "
            "(line 1, column 1)",
        ),
    ],
)
def test_what_is_refused(text: str, error: str) -> None:
    with pytest.raises(UserError) as refused:
        read_listing(text)
    assert str(refused.value) == error
