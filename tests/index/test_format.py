from __future__ import annotations

import re
from pathlib import Path

from lakerunner.index.index import Index

PAGE = Path(__file__).resolve().parents[2] / "docs" / "formats" / "index.md"


def test_the_page_names_every_table_and_column_in_order(index: Index) -> None:
    with index.pool.connection() as connection:
        rows = connection.execute(
            "SELECT table_name, column_name FROM information_schema.columns WHERE table_schema = 'lrdb'"
            " ORDER BY table_name, ordinal_position"
        ).fetchall()
    schema: dict[str, list[str]] = {}
    for table, column in rows:
        schema.setdefault(table, []).append(column)
    page: dict[str, list[str]] = {}
    for section in re.split(r"^### ", PAGE.read_text(), flags=re.M)[1:]:
        title, text = section.split("\n", 1)
        described = text.split("| Column | |\n|---|---|\n", 1)[1].split("\n\n", 1)[0]
        page[title.strip("`").removeprefix("lrdb.")] = re.findall(r"^\| `(\w+)` \|", described, re.M)
    assert page == schema
