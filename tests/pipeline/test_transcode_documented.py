"""docs/formats/inputs.md shows users the lists that the code guesses by."""

from __future__ import annotations

from pathlib import Path

import pytest

from lakerunner.pipeline.transcode.columns import GUESSES, SUFFIXES, plain_name
from lakerunner.pipeline.unpack import FORMATS

TEXT = (Path(__file__).resolve().parents[2] / "docs" / "formats" / "inputs.md").read_text()


def table(signal: str) -> dict[str, str]:
    """What the signal's table says of each field."""
    section = TEXT.partition(f"### {signal.capitalize()}\n")[2].partition("\n### ")[0]
    rows = [line.split("|") for line in section.splitlines() if line.startswith("| `")]
    return {field.strip(" `"): row[2] for row in rows for field in row[1].split(",")}


@pytest.mark.parametrize("signal", sorted(GUESSES))
def test_every_guess_is_documented_in_its_order(signal: str) -> None:
    shown = table(signal)
    assert shown.keys() == GUESSES[signal].keys()
    for field, names in GUESSES[signal].items():
        if "as for logs" in shown[field]:
            assert names == GUESSES["logs"][field]
            continue
        listed = [word.strip() for word in shown[field].partition(";")[0].split(",")]
        assert tuple(listed) == names
        assert all(plain_name(name) == name for name in names)


def test_every_suffix_and_ending_is_documented() -> None:
    for word in (*SUFFIXES, *FORMATS):
        assert f"`{word}`" in TEXT
