"""`lakerunner rules`, as people run it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from index.index_values import OTHER
from lakerunner.cli import cli
from lakerunner.index.index import Index
from lakerunner.model.errors import NotFound, TooLarge, UserError
from lakerunner.services.rule_file import FILE_MAX
from servers.lake import clean_environment
from servers.postgres import empty_index
from suites.rules import ERRORS, rule
from suites.swept_lake import ACME

ADD = ("add", "errors", "--signal", "logs", "--measure", "count", "--metric", "log_errors", "--by", "service_name")
SELECT = ("--select", ERRORS.selector)


@pytest.fixture
def index(embedded_postgres_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Index]:
    with empty_index(embedded_postgres_url, ACME, OTHER) as opened:
        home = {"DATABASE_URL": opened.url, "LAKERUNNER_HOME": str(tmp_path / "home")}
        for name, value in clean_environment(home).items():
            monkeypatch.setenv(name, value)
        yield opened


def run(*words: str, given: str | bytes = "", org: str = ACME.name) -> Result:
    return CliRunner().invoke(cli, ["rules", *words, "--org", org], input=given)


def test_a_rule_is_added_changed_and_dropped(index: Index) -> None:
    assert run(*ADD, *SELECT).stdout == "errors v1: active\n"
    assert [one.rule for one in index.metric_rules.current(ACME.id)] == [ERRORS]
    assert run(*ADD, *SELECT, "--by", "a, b", "--disabled").stdout == "errors v2: disabled\n"
    assert index.metric_rules.find(ACME.id, "errors").rule.dimensions == ("a", "b", "service_name")
    assert run("enable", "errors").exit_code == 0
    index.metric_rules.pause(index.metric_rules.find(ACME.id, "errors").id, "12,000 series")
    listed = run("list").stdout
    assert "errors" in listed
    assert "paused: 12,000 series" in listed
    assert run("enable", "errors").exit_code == run("disable", "errors").exit_code == 0
    assert "disabled" in run("list").stdout
    assert index.metric_rules.current(OTHER.id) == []
    assert isinstance(run("drop", "errors", org=OTHER.name).exception, NotFound)
    assert run("drop", "errors").exit_code == 0
    empty = run("list")
    assert "`lakerunner rules presets` lists ready-made ones" in empty.stderr


def test_wrong_options_say_what_is_wrong(index: Index) -> None:
    assert "a rule over logs needs --select" in run(*ADD).stderr
    wrong = run(*ADD, "--select", '{a="b"} | json |')
    assert isinstance(wrong.exception, UserError)
    assert "rule 'errors': " in str(wrong.exception)
    assert "(line 1, column " in str(wrong.exception)
    assert isinstance(run("enable", "errors").exception, NotFound)
    assert index.metric_rules.current(ACME.id) == []


def test_rules_over_spans_and_metrics_choose_all_by_default(index: Index) -> None:
    assert run("add", "calls", "--signal", "traces", "--measure", "count", "--metric", "calls").exit_code == 0
    metrics = ("--signal", "metrics", "--measure", "sum(value)", "--metric", "b", "--source-metric", "calls")
    assert run("add", "by-service", *metrics, "--max-series", "5", "--description", "why").exit_code == 0
    found = {one.rule.name: one.rule for one in index.metric_rules.current(ACME.id)}
    assert found["calls"].selector == found["by-service"].selector == "{}"
    assert (found["by-service"].max_series, found["by-service"].description) == (5, "why")


def test_what_show_prints_can_be_applied(index: Index) -> None:
    index.metric_rules.put(ACME.id, ERRORS)
    index.metric_rules.put(ACME.id, rule("b", description="ü\n\x1b[0m"))
    assert json.loads(run("show", "errors", "--json").stdout) == {"rules": [ERRORS.to_json()]}
    shown = run("show").stdout
    assert run("apply", "-", given=shown).stdout == "no changes\n"
    assert run("apply", "-", given=shown, org=OTHER.name).stdout == "+ b\n+ errors\n"
    assert isinstance(run("show", "c").exception, NotFound)


def test_a_file_is_applied_as_a_whole_and_shows_the_difference_first(index: Index, tmp_path: Path) -> None:
    for name in ("a", "b", "c"):
        index.metric_rules.put(ACME.id, rule(name))
    file = tmp_path / "rules.yaml"
    wanted = [rule("a"), rule("b", selector='{a="b"}', dimensions=()), rule("c", max_series=5), rule("d")]
    file.write_text(json.dumps({"rules": [one.to_json() for one in wanted]}))  # JSON is YAML
    difference = "~ b v1 -> v2: selector, dimensions\n~ c v1: max_series\n+ d\n"
    assert run("apply", str(file), "--dry-run").stdout == difference
    assert [one.rule for one in index.metric_rules.current(ACME.id)] == [rule("a"), rule("b"), rule("c")]
    assert run("apply", str(file)).stdout == difference
    assert [one.rule for one in index.metric_rules.current(ACME.id)] == wanted
    assert run("apply", str(file)).stdout == "no changes\n"
    assert run("apply", "-", given="rules: []").stdout == "- a\n- b\n- c\n- d\n"
    assert index.metric_rules.current(ACME.id) == []


@pytest.mark.parametrize(("answer", "applied"), [("y\n", True), ("n\n", False)])
def test_on_a_terminal_it_asks_first(
    index: Index, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, answer: str, applied: bool
) -> None:
    monkeypatch.setattr("click.testing._NamedTextIOWrapper.isatty", lambda _: True, raising=False)
    file = tmp_path / "rules.yaml"
    file.write_text(json.dumps({"rules": [ERRORS.to_json()]}))
    done = run("apply", str(file), given=answer)
    assert "+ errors\nApply to acme? [y/N]: " in done.stdout
    assert ([one.rule for one in index.metric_rules.current(ACME.id)] == [ERRORS]) == applied
    assert done.exit_code == (0 if applied else 1)
    assert "Apply" not in run("apply", str(file), "--yes").stdout
    assert [one.rule for one in index.metric_rules.current(ACME.id)] == [ERRORS]


@pytest.mark.parametrize(
    ("given", "kind", "message"),
    [
        ("rules: [1", UserError, "the file of rules is not YAML: "),
        (b"rules: \xff", UserError, "not UTF-8 text"),
        ("#" * (FILE_MAX + 1), TooLarge, "the limit is 1048576"),
        ('rules: [{name: a, signal: logs, selector: "{", measure: count, metric: a}]', UserError, "rule 'a': "),
    ],
)
def test_wrong_files_are_refused_and_change_nothing(
    index: Index, given: str | bytes, kind: type[UserError], message: str
) -> None:
    index.metric_rules.put(ACME.id, ERRORS)
    refused = run("apply", "-", given=given)
    assert isinstance(refused.exception, kind)
    assert message in str(refused.exception)
    assert [one.rule for one in index.metric_rules.current(ACME.id)] == [ERRORS]


def test_presets_are_listed_and_switched_on(index: Index) -> None:
    listed = CliRunner().invoke(cli, ["rules", "presets"]).stdout
    for words in ("log-errors", "log_bytes", "histogram(duration)", "kind, name, service_name"):
        assert words in listed
    added = run("presets", "add", "log-errors", "span-calls", "--disabled")
    assert added.stdout == "log-errors v1: disabled\nspan-calls v1: disabled\n"
    assert run("presets", "add", "log-errors").stdout == "log-errors v1: active\n"
    assert isinstance(run("presets", "add", "span-calls", "x").exception, NotFound)
    assert [one.rule.enabled for one in index.metric_rules.current(ACME.id)] == [True, False]
