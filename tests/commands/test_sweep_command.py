"""`lakerunner sweep`, `lakerunner retention` and the process `lakerunner sweeper`, as people run them."""

from __future__ import annotations

import logging
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from lakerunner.cli import cli
from lakerunner.index.index import Index
from lakerunner.model.errors import NotFound, UserError
from lakerunner.model.time import DAY_NS, HOUR_NS
from lakerunner.objects.open import StoreAddress, open_store
from servers.lake import LAKERUNNER, clean_environment, wait_until
from servers.postgres import index_database
from suites.swept_lake import ACME, SweptLake, files_of

SECONDS = 120
Run = Callable[..., Result]


@pytest.fixture
def url(embedded_postgres_url: str) -> Iterator[str]:
    with index_database(embedded_postgres_url) as url:
        yield url


@pytest.fixture
def lake(url: str, tmp_path: Path) -> Iterator[SweptLake]:
    index = Index.open(url, connections=4)
    index.organizations.create(ACME)
    yield SweptLake(index, open_store(StoreAddress((tmp_path / "store").as_uri())))
    index.close()


@pytest.fixture
def environment(url: str, tmp_path: Path) -> dict[str, str]:
    return clean_environment(
        {
            "DATABASE_URL": url,
            "LAKERUNNER_HOME": str(tmp_path / "home"),
            "LAKERUNNER_STORE": (tmp_path / "store").as_uri(),
            "LAKERUNNER_RETENTION": "logs=30d,metrics.1h=2y",
        }
    )


@pytest.fixture
def run(environment: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> Iterator[Run]:
    """The command in this process, which has loaded already what it takes seconds to load."""
    root = logging.getLogger()
    handlers = root.handlers[:]

    def run(*words: str, **settings: str) -> Result:
        extra = {f"LAKERUNNER_{name.upper()}": value for name, value in settings.items()}
        for name, value in (environment | extra).items():
            monkeypatch.setenv(name, value)
        return CliRunner().invoke(cli, words)

    yield run
    root.handlers[:] = handlers


def filled(lake: SweptLake) -> dict[str, set[str]]:
    """The times of these are real: the command's clock is the index's."""
    now_ns = lake.index.sweep.now_ns()
    live = lake.segment("live", sides=())
    lake.change(live.id, created_ns=now_ns)
    with lake.index.pool.connection() as connection:
        connection.execute("UPDATE lrdb.segments SET end_ns = %s", (now_ns,))
    past = lake.segment("past", 400 * DAY_NS)
    replaced = lake.segment("replaced", state="replaced", ended_ns=now_ns - 2 * HOUR_NS)
    return {
        "live": {live.path},
        "past": files_of(past),
        "replaced": files_of(replaced),
        "orphan": {lake.orphan("lost", now_ns - 2 * HOUR_NS)},
        "young": {lake.orphan("young", now_ns)},
    }


def test_a_dry_run_tells_and_a_sweep_does(lake: SweptLake, run: Run) -> None:
    files = filled(lake)
    before = lake.objects(), lake.states()
    dry = run("sweep", "--dry-run", "--verbose")
    assert dry.exit_code == 0, dry.stderr
    assert (lake.objects(), lake.states()) == before
    for key in (*files["replaced"], *files["orphan"]):
        assert f"  {key}\n" in dry.stdout
    for key in (*files["live"], *files["young"]):
        assert key not in dry.stdout
    table = " ".join(dry.stdout.split())
    for words in (
        "past retention",
        "acme",
        "kept for 30d",
        "replaced",
        "replaced: another segment has its rows",
        "the index does",
    ):
        assert words in table
    assert "3 rows" in dry.stdout
    assert "dry run: nothing was changed" in dry.stderr

    swept = run("sweep")
    assert swept.exit_code == 0, swept.stderr
    assert "4 objects of 22 bytes deleted, 1 row forgotten" in swept.stderr
    assert lake.objects() == files["live"] | files["past"] | files["young"]
    assert sorted(lake.states().values()) == ["expired", "live"]
    wait_until(lambda: lake.index.sweep.sweeping() == "", "the server has seen the first one go", 60)
    again = run("sweep")
    assert (again.exit_code, "0 objects of 0 bytes deleted" in again.stderr) == (0, True)


def test_a_second_sweeper_is_told_who_is_at_work(lake: SweptLake, run: Run) -> None:
    filled(lake)
    before = lake.objects()
    with lake.index.sweep.alone("on host-a pid 7"):
        second = run("sweep")
        dry = run("sweep", "--dry-run")
    assert second.exit_code == 3
    assert "another sweeper is running: lakerunner sweeper on host-a pid 7" in second.stderr
    assert lake.objects() == before
    assert dry.exit_code == 0


def test_wrong_settings_are_refused(lake: SweptLake, run: Run) -> None:
    for settings, words in (
        ({"retention": "log=30d"}, "'log' has no retention: use one of logs, metrics"),
        ({"raw_retention": "2h"}, "raw_retention: 2h is less than 24h"),
    ):
        wrong = run("sweep", "--dry-run", **settings)
        assert isinstance(wrong.exception, UserError)  # which `main` prints as one line, with exit code 1
        assert words in str(wrong.exception)


def test_retention_is_shown_set_and_cleared(lake: SweptLake, run: Run) -> None:
    def shown() -> list[list[str]]:
        lines = run("retention", "show", "--org", "acme").stdout.splitlines()
        return [line.replace("│", " ").split() for line in lines if "│" in line]

    setting = ["the", "setting", "retention"]
    assert ["logs", "30d", *setting] in shown()
    assert ["traces", "forever"] in shown()
    assert run("retention", "set", "logs=3d", "metrics.1h=forever", "--org", "acme").exit_code == 0
    assert ["logs", "3d", "the", "organization"] in shown()
    assert ["metrics.1h", "forever", "the", "organization"] in shown()
    cleared = run("retention", "clear", "logs", "traces", "--org", "acme")
    assert cleared.stdout == "1 cleared\n"
    assert ["logs", "30d", *setting] in shown()
    for words, reason in (
        (("set", "logs"), "'logs' is not NAME=DURATION"),
        (("set", "logs=1m"), "out of range"),
        (("clear", "log"), "'log' has no retention"),
    ):
        wrong = run("retention", *words, "--org", "acme")
        assert isinstance(wrong.exception, UserError)
        assert reason in str(wrong.exception)
    assert isinstance(run("retention", "show", "--org", "nobody").exception, NotFound)


@pytest.mark.slow
def test_the_process_sweeps_by_itself_and_ends_in_order(
    lake: SweptLake, environment: dict[str, str], tmp_path: Path
) -> None:
    files = filled(lake)
    settings = {"LAKERUNNER_SWEEP_SECONDS": "0.5", "LAKERUNNER_LISTEN": "127.0.0.1:0", "LAKERUNNER_LOG_LEVEL": "debug"}
    with (tmp_path / "log").open("wb") as log:
        process = subprocess.Popen([*LAKERUNNER, "sweeper"], env=environment | settings, stdout=log, stderr=log)
    left = files["live"] | files["past"] | files["young"]
    try:
        wait_until(lambda: lake.objects() == left, "swept", SECONDS, lambda: (tmp_path / "log").read_text())
    finally:
        process.terminate()
        code = process.wait(60)
    assert code == 0, (tmp_path / "log").read_text()
