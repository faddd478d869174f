"""An organization is named by a word: a name that reads as an id would be taken for another's."""

from __future__ import annotations

import pytest

from lakerunner.index.index import Index
from lakerunner.model.errors import UserError
from lakerunner.services.ground import create_organization


@pytest.mark.parametrize("name", ["12340000-0000-4000-8000-000000000000", "12340000000040008000000000000000"])
def test_a_name_that_reads_as_an_id_is_refused(name: str, embedded_postgres_url: str) -> None:
    index = Index.open(embedded_postgres_url, connections=2)
    try:
        with pytest.raises(UserError, match="has the form of an id: choose a different name"):
            create_organization(index, name, None)
    finally:
        index.close()
