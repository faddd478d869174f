"""`lakerunner rules backfill`, as people run it, on a lake with stored segments."""

from __future__ import annotations

import random
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from lakerunner.cli import cli
from lakerunner.commands.rule_backfill import progress_text
from lakerunner.index.commit import Commit, Covering
from lakerunner.index.index import Index
from lakerunner.index.rule_history import RuleCoverage
from lakerunner.model.errors import NotFound, UserError
from lakerunner.model.organization import Organization
from lakerunner.model.segment import Segment
from lakerunner.pipeline.part_segments import NO_RULES
from servers.lake import clean_environment
from servers.postgres import empty_index
from suites.covered_lines import BY_SERVICE, Files, random_lines, request
from suites.ingested import ORGANIZATION

NAME = BY_SERVICE.rule.name
SINCE = ("--since", "2020-01-01")
ADD: tuple[str, ...] = ("add", NAME, "--signal", "logs", "--select", BY_SERVICE.rule.selector)
ADD += ("--measure", "count", "--metric", "made_3", "--by", "service_name")


@pytest.fixture
def index(embedded_postgres_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Index]:
    with empty_index(embedded_postgres_url, Organization(ORGANIZATION, "acme")) as opened:
        home = {"DATABASE_URL": opened.url, "LAKERUNNER_HOME": str(tmp_path / "home")}
        home["LAKERUNNER_STORE"] = (tmp_path / "store").as_uri()
        for name, value in clean_environment(home).items():
            monkeypatch.setenv(name, value)
        yield opened


@pytest.fixture
def segments(index: Index, tmp_path: Path) -> list[Segment]:
    (tmp_path / "store").mkdir()
    files = Files(tmp_path / "store")
    made = []
    for number in range(4):
        lines = request(random_lines(random.Random(number)))
        (segment,) = files.ingest(files.put(f"logs_{number}", lines), book=NO_RULES).segments
        index.commit(Commit((segment,), (), ()))
        made.append(segment)
    return made


def run(*words: str) -> Result:
    return CliRunner().invoke(cli, ["rules", *words, "--org", "acme"])


def test_a_rule_with_history_says_how_much_it_covers(index: Index, segments: list[Segment]) -> None:
    assert isinstance(run("backfill", NAME, *SINCE).exception, NotFound)
    assert run(*ADD).exit_code == 0
    assert run("backfill", NAME, *SINCE).stdout == (
        f"{NAME} v1: covers 0% of segments, 0% of rows since 2020-01-01 00:00:00\n"
    )
    version = index.metric_rules.find(ORGANIZATION, NAME)
    index.commit(Commit((), (), (), covered=(Covering(segments[0], (version.id,)),)))
    assert "covers 25% of segments, 25% of rows since 2020-01-01" in run("list").stdout
    shown = run("show").stdout
    assert shown.startswith(f"# {NAME} covers 25% of segments, 25% of rows since 2020-01-01 00:00:00\nrules:\n")
    index.tending.set_aside(ORGANIZATION, [segments[1].id], "damaged")
    for one in segments[2:]:
        index.commit(Commit((), (), (), covered=(Covering(one, (version.id,)),)))
    done = run("backfill", NAME, *SINCE, "--wait")
    assert (done.exit_code, done.stdout.splitlines()[-1]) == (
        0,
        f"{NAME} v1: covers 75% of segments, 75% of rows since 2020-01-01 00:00:00; 1 segment cannot be read",
    )


def test_since_is_an_option_of_add_and_checked_first(index: Index) -> None:
    assert isinstance(run(*ADD, "--since", "soon").exception, UserError)
    assert isinstance(run(*ADD, "--since", "2999-01-01").exception, UserError)
    assert index.metric_rules.current(ORGANIZATION) == []
    assert run(*ADD, *SINCE).stdout == f"{NAME} v1: active\n"
    assert index.metric_rules.find(ORGANIZATION, NAME).since_ns == 1_577_836_800 * 10**9


def test_a_dry_run_shows_what_it_costs_and_changes_nothing(index: Index, segments: list[Segment]) -> None:
    run(*ADD)
    shown = run("backfill", NAME, *SINCE, "--dry-run")
    assert shown.exit_code == 0, shown.exception
    day = re.search(r"2025-10-09\W+4\W+160\W", shown.stdout)
    assert day, shown.stdout
    size = sum(one.bytes for one in segments)
    assert f"4 segments, 160 rows, {size:,} bytes are not covered" in shown.stdout
    assert re.search(rf"about \d+\.\d CPU seconds, by evaluating {NAME} over a segment of 40 rows here", shown.stdout)
    assert index.metric_rules.find(ORGANIZATION, NAME).since_ns is None
    assert index.segments.totals(ORGANIZATION)[0] == 4
    assert "0 segments, 0 rows" in run("backfill", NAME, "--since", "1s", "--dry-run").stdout


def test_waiting_ends_where_the_rule_does(index: Index, segments: list[Segment]) -> None:
    run(*ADD, "--disabled")
    stopped = run("backfill", NAME, *SINCE, "--wait")
    assert (stopped.exit_code, f"{NAME} v1 stopped" in stopped.stderr) == (1, True)


def test_progress_is_counts_and_a_rate() -> None:
    coverage = RuleCoverage(1200, 40_000, 0, 1, 10_000, 0)
    assert progress_text(coverage, 5000, 2.5) == (
        "1 of 1,200 segments, 10,000 of 40,000 rows covered, 2,000 rows a second"
    )
    assert progress_text(coverage, 0, 0.0).endswith("0 rows a second")
