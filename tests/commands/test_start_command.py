"""Commands that start a process: everything that is wrong with its settings is reported before anything is created."""

from __future__ import annotations

import json
import os
import signal
import socket
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from lakerunner.cli import main
from lakerunner.services.home import Home
from servers.ports import free_port


@pytest.fixture
def taken() -> Iterator[int]:
    """A port that another program listens on."""
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        yield other.getsockname()[1]


Run = Callable[..., tuple[int, str, str]]  # a command with settings: its exit code and both outputs


@pytest.fixture
def command(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> Iterator[Run]:
    """Run a command with these settings in an empty directory; its exit code and both outputs."""
    before = os.umask(0o022)
    monkeypatch.chdir(tmp_path)
    for name in [*os.environ]:
        if name.startswith("LAKERUNNER_") or name == "DATABASE_URL":
            monkeypatch.delenv(name)

    def run(*arguments: str, **settings: str) -> tuple[int, str, str]:
        for name, value in settings.items():
            monkeypatch.setenv(name if name == "DATABASE_URL" else f"LAKERUNNER_{name.upper()}", value)
        monkeypatch.setattr(sys, "argv", ["lakerunner", *arguments])
        with pytest.raises(SystemExit) as ended:
            main()
        output, errors = capfd.readouterr()
        return ended.value.code if isinstance(ended.value.code, int) else 0, output, errors

    yield run
    os.umask(before)


def test_up_reports_all_wrong_settings_and_creates_nothing(command: Run, taken: int, tmp_path: Path) -> None:
    code, output, errors = command(
        "up",
        listen=f"127.0.0.1:{taken}",
        otlp_grpc_port=str(taken),
        otlp_http_port=str(free_port()),
        query_memory="2 GBB",
        store="s4://lake",
        cors_origins="*",
        mapping_file="absent.toml",
        raw_retention="1h",
        workers="worker:7080",
        queue_options="region=eu",
        failpoint="lunch",
        bus="rabbit",
    )
    assert (code, output) == (2, "")
    lines = [line.split(" (")[0].strip() for line in errors.splitlines()]
    assert lines == [
        "error: 11 settings are invalid:",
        "query_memory = '2 GBB'",
        "store = 's4://lake'",
        "bus = 'rabbit'",
        f"listen = '127.0.0.1:{taken}'",
        "cors_origins = '*'",
        "queue_options = 'region=eu'",
        "workers = 'worker:7080'",
        "mapping_file = 'absent.toml'",
        "raw_retention = '1h'",
        "failpoint = 'lunch'",
        f"otlp_grpc_port = '{taken}'",
    ]
    assert f"another program listens on 127.0.0.1:{taken}: stop it, or choose another port with --listen" in errors
    assert "is the port of listen too: choose another, or 0 for a free one" in errors
    assert list(tmp_path.iterdir()) == []


def test_a_chosen_otlp_port_must_be_free(command: Run, taken: int) -> None:
    code, _, errors = command("up", listen="127.0.0.1:0", otlp_http_port=str(taken))
    assert code == 2
    assert errors == (
        "error: a setting is invalid:\n"
        f"  otlp_http_port = '{taken}' (environment variable LAKERUNNER_OTLP_HTTP_PORT) cannot be used: "
        f"another program listens on 127.0.0.1:{taken}: stop it, or choose another port, 0 for a free one\n"
    )


def test_a_home_that_cannot_be_made_is_refused(command: Run, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    remedy = "choose a directory that you can write to with --home or LAKERUNNER_HOME"
    code, _, errors = command("up", "--home", str(tmp_path / "file"))
    assert code == 2
    assert f"cannot be used: it is a file: {remedy}" in errors
    code, _, errors = command("up", "--home", str(tmp_path / "file" / "lake" / "deep"))
    assert code == 2
    assert f"cannot be used: {tmp_path}/file is a file: {remedy}" in errors


def test_a_home_that_another_process_has_is_named_beside_what_else_is_wrong(command: Run, tmp_path: Path) -> None:
    home = Home(tmp_path / "lake")
    try:
        code, _, errors = command("up", "--home", str(tmp_path / "lake"), listen="nowhere.invalid:1")
    finally:
        home.close()
    assert code == 2
    assert f"process {os.getpid()} runs with this home: stop it, or choose another with --home" in errors
    assert "listen = 'nowhere.invalid:1'" in errors


def test_ports_of_the_process_that_has_the_home_are_not_listed_beside_it(
    command: Run, taken: int, tmp_path: Path
) -> None:
    home = Home(tmp_path / "lake")
    try:
        code, _, errors = command("up", home=str(tmp_path / "lake"), listen=f"127.0.0.1:{taken}")
    finally:
        home.close()
    assert (code, errors.count("\n")) == (2, 2)
    assert errors.startswith(f"error: a setting is invalid:\n  home = '{tmp_path}/lake'")


@pytest.mark.parametrize(
    ("arguments", "settings", "wrong"),
    [
        (["boxer"], {}, "database_url = '' (default) is missing: a service that runs alone shares its index"),
        (["query-worker", "--listen", "0.0.0.0:0"], {}, "a query worker on other hosts than loopback needs a secret"),
        (["query-api"], {"DATABASE_URL": "postgresql://l:s3cret@db:none/l"}, "postgresql://l:****@db:none/l"),
    ],
)
def test_what_a_service_needs_is_checked_before_it_starts(
    command: Run, arguments: list[str], settings: dict[str, str], wrong: str
) -> None:
    code, _, errors = command(*arguments, **{"listen": "127.0.0.1:0", **settings})
    assert code == 2
    assert wrong in errors
    assert "s3cret" not in errors


@pytest.mark.parametrize("name", ["up", "demo", "ingest"])
def test_ctrl_c_while_the_parts_are_imported_shows_stopped(
    command: Run, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    class CtrlC:
        """Pressed at the moment when a module is looked for."""

        @staticmethod
        def find_spec(module: str, *_: object) -> None:
            if module == "lakerunner.services.run":
                signal.raise_signal(signal.SIGINT)

    monkeypatch.delitem(sys.modules, "lakerunner.services.run", raising=False)
    monkeypatch.setattr(sys, "meta_path", [CtrlC, *sys.meta_path])
    given = {"DATABASE_URL": "postgresql://db/lake", "listen": "127.0.0.1:0"}
    assert command(name, **given) == (0, "stopped\n", "")


def test_settings_shows_values_in_force_and_their_sources(command: Run, tmp_path: Path) -> None:
    (tmp_path / "lake.toml").write_text("box_max_objects = 5\n")
    given = {"CONFIG": "lake.toml", "DATABASE_URL": "postgresql://lake:s3cret@db/lake", "lister_seconds": "3"}
    code, output, errors = command("settings", "--home", "there", **given)
    shown = [line.split(maxsplit=2) for line in output.splitlines() if "default" not in line][:4]
    assert (code, errors) == (0, "")
    assert shown == [
        ["home", "there", "option --home"],
        ["database_url", "postgresql://lake:****@db/lake", "environment variable DATABASE_URL"],
        ["lister_seconds", "3.0", "environment variable LAKERUNNER_LISTER_SECONDS"],
        ["box_max_objects", "5", "config file lake.toml"],
    ]
    assert json.loads(command("settings", "--json", "box_max_objects")[1]) == {
        "box_max_objects": {
            "description": "Close a box when it holds this number of objects.",
            "value": "5",
            "default": "1000",
            "source": "config file lake.toml",
        }
    }
    assert "set it with  LAKERUNNER_BOX_MAX_OBJECTS=..." in command("settings", "BOX_MAX_OBJECTS")[1]
    assert command("settings", "stoer")[::2] == (1, "error: setting 'stoer' is unknown: did you mean store?\n")
    code, _, errors = command("settings", "home", log_level="loud")
    assert (code, errors.count("\n")) == (2, 1)
    assert list(tmp_path.iterdir()) == [tmp_path / "lake.toml"]


@pytest.mark.parametrize(
    "arguments",
    [
        ["keys", "list"],
        ["keys", "rotate", "grafana"],
        ["keys", "revoke", "grafana"],
        ["orgs", "list"],
        ["orgs", "limit", "default", "--concurrent", "2"],
        ["retention", "show"],
        ["retention", "clear", "logs"],
        ["streams", "show"],
        ["streams", "clear"],
        ["sweep", "--dry-run"],
        ["sweep"],
        ["status"],
        ["fsck"],
        ["work"],
        ["cardinality"],
        ["objects"],
        ["backfill", "otel-raw/", "--dry-run"],
    ],
    ids=" ".join,
)
def test_a_command_that_needs_a_lake_creates_none(command: Run, tmp_path: Path, arguments: list[str]) -> None:
    code, output, errors = command(*arguments, home="lakes/new")
    assert (code, output) == (2, "")
    assert errors == (
        f"error: no lake found in {tmp_path}/lakes/new: start one with `lakerunner up`, or "
        "name the home of yours with --home or LAKERUNNER_HOME, or its PostgreSQL server "
        "with DATABASE_URL\n"
    )
    assert list(tmp_path.iterdir()) == []
