"""`lakerunner streams`, as people run it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from lakerunner.cli import cli
from lakerunner.index.index import Index
from lakerunner.model.errors import UserError
from lakerunner.model.streams.stream_rules import DEFAULT_RULES
from servers.lake import clean_environment
from servers.postgres import index_database
from suites.swept_lake import ACME


@pytest.fixture
def index(embedded_postgres_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Index]:
    with index_database(embedded_postgres_url) as url:
        home = {"DATABASE_URL": url, "LAKERUNNER_HOME": str(tmp_path / "home")}
        for name, value in clean_environment(home).items():
            monkeypatch.setenv(name, value)
        index = Index.open(url, connections=2)
        index.organizations.create(ACME)
        yield index
        index.close()


def run(*words: str, given: str = "") -> Result:
    return CliRunner().invoke(cli, ["streams", *words, "--org", ACME.name], input=given)


def test_rules_are_shown_set_and_cleared(index: Index) -> None:
    assert json.loads(run("show").stdout) == DEFAULT_RULES.to_json()
    done = run("set", "-", given='{"discover_service_name": ["team"], "discover_log_levels": false}')
    assert (done.exit_code, done.stdout) == (0, "")
    rules = index.organizations.stream_rules(ACME.id)
    assert (rules.service_labels, rules.detect_levels) == (("team",), False)
    assert json.loads(run("show").stdout) == rules.to_json()
    assert run("set", "-", given=run("show").stdout).exit_code == 0
    assert index.organizations.stream_rules(ACME.id) == rules
    assert run("clear").exit_code == 0
    assert index.organizations.stream_rules(ACME.id) == DEFAULT_RULES


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("{", "stream rules are not JSON: "),
        ("[" * 100_000, "stream rules are not JSON: "),
        ('{"discover_log_level": true}', "unknown name 'discover_log_level' in stream rules: use discover_log_levels"),
    ],
)
def test_wrong_rules_are_refused_and_change_nothing(index: Index, given: str, message: str) -> None:
    refused = run("set", "-", given=given)
    assert isinstance(refused.exception, UserError)
    assert message in str(refused.exception)
    assert index.organizations.stream_rules(ACME.id) == DEFAULT_RULES
