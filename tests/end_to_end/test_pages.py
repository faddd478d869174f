"""Every command block of the README and of the guides runs as it stands, on one throw-away lake.

Only the port is another: 7080, the default, may be taken on a developer's machine.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from servers.lake import Lake, clean_environment, lake
from suites.pages import CommandBlock, command_blocks

ROOT = Path(__file__).resolve().parents[2]
PAGES = (ROOT / "README.md", *sorted((ROOT / "docs" / "guides").glob("*.md")))
pytestmark = pytest.mark.heavy


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lake]:
    with lake(tmp_path_factory.mktemp("pages") / "home") as found:
        yield found


@pytest.fixture(scope="module")
def environment(running: Lake, tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, str]:
    if not shutil.which("curl"):
        pytest.skip("no curl is installed")
    programs = Path(sys.executable).parent
    curl = tmp_path_factory.mktemp("curl")
    (curl / ".curlrc").write_text("fail-with-body\n")  # an answer of 4xx or 5xx is a failure
    return clean_environment(
        {
            "LAKERUNNER_HOME": str(running.home),
            "PATH": f"{programs}:{os.environ['PATH']}",
            "CURL_HOME": str(curl),
        }
    )


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_commands_of_a_page_run(page: Path, running: Lake, environment: Mapping[str, str], tmp_path: Path) -> None:
    port = running.url.rpartition(":")[2]
    wrong = [
        f"{block.page.name}:{block.line}: {problem}"
        for block in command_blocks(page)
        if not block.reason and (problem := _moved(block, port).run(tmp_path, environment))
    ]
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_commands_stand_in_blocks_that_run(page: Path) -> None:
    assert "\n    lakerunner " not in page.read_text()


def test_reasons_say_something() -> None:
    """A block that is left out is a promise that nobody checks: its reason is a sentence."""
    blocks = [block for page in PAGES for block in command_blocks(page)]
    assert all(len(block.reason.split()) > 3 for block in blocks if block.reason)
    assert sum(not block.reason for block in blocks) > sum(bool(block.reason) for block in blocks)


def _moved(block: CommandBlock, port: str) -> CommandBlock:
    commands = block.commands.replace("127.0.0.1:7080", f"127.0.0.1:{port}")
    return CommandBlock(block.page, block.line, commands, block.reason, block.output)
