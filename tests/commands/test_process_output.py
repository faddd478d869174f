"""What a process writes: on a terminal what a person needs, once, and `stopped`; elsewhere its log is JSON."""

from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from lakerunner.commands.terminal.screen import TerminalScreen, ready_text
from lakerunner.settings import Settings
from servers.lake import LAKERUNNER, START_SECONDS, STOP_SECONDS, clean_environment, wait_until
from servers.postgres import drop_database, fresh_database

WORKER = ["query-worker", "--listen", "127.0.0.1:0", "--home"]
PARTS = ("ingest", "query-api", "pubsub")


@pytest.fixture(scope="module")
def _compiled() -> None:
    """Compile all kernels: a first start says that it compiles them."""
    subprocess.run([sys.executable, "-m", "lakerunner.services.warm"], check=True, timeout=590)


def test_up_shows_once_where_to_push_how_to_ask_and_where_the_guide_is() -> None:
    settings = replace(Settings(), home=Path("my lake"), store="file:///data/store")
    doors = {"OTLP gRPC": "127.0.0.1:4317", "OTLP HTTP": "off: port 4318 is in use. Set LAKERUNNER_OTLP_HTTP_PORT"}
    assert ready_text(settings, PARTS, "http://127.0.0.1:7080", doors) == (
        """\
lakerunner is ready at http://127.0.0.1:7080
  OTLP gRPC     127.0.0.1:4317
  OTLP HTTP     off: port 4318 is in use. Set LAKERUNNER_OTLP_HTTP_PORT
  remote write  http://127.0.0.1:7080/api/v1/write
  Loki          http://127.0.0.1:7080/loki/api/v1/push
  files         /data/store/otel-raw/default/NAME/
  Grafana       http://127.0.0.1:7080/prometheus (as a data source of type Prometheus)
  ask           lakerunner sql --home 'my lake' "select service_name, count(*) from logs group by 1"
  guide         docs/guides/operate.md"""
    )
    odd = replace(settings, store="", home=Path("/home/me@work/my läke"))
    assert "  files         '/home/me@work/my läke/store/otel-raw/default/NAME/'" in ready_text(
        odd, PARTS, "http://h", {}
    )
    hidden = replace(settings, store="s3://key:sec/ret@bucket/lake")
    assert "  files         s3://bucket/lake/otel-raw/default/NAME/" in ready_text(hidden, PARTS, "http://h", {})
    assert (
        ready_text(settings, ["boxer"], "http://h:1", {}).splitlines()[0] == "lakerunner boxer is ready at http://h:1"
    )


@pytest.mark.usefixtures("_compiled")
def test_ctrl_c_on_a_terminal_shows_stopped_and_nothing_more(tmp_path: Path) -> None:
    ours, theirs = pty.openpty()
    with os.fdopen(ours, "rb", buffering=0) as screen:
        process = subprocess.Popen(
            [*LAKERUNNER, *WORKER, str(tmp_path / "home")],
            env=clean_environment(),
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            start_new_session=True,
        )
        os.close(theirs)
        shown = b""
        while b"guide" not in shown:
            shown += screen.read(4096)
        os.killpg(process.pid, signal.SIGINT)  # as a terminal does: every process of the group gets it
        assert process.wait(STOP_SECONDS) == 0
        try:
            while more := screen.read(4096):
                shown += more
        except OSError:  # nobody has the terminal any more
            pass
    first, *rest = shown.decode().replace("\r\n", "\n").splitlines()
    assert first.startswith("lakerunner query-worker is ready at http://127.0.0.1:")
    assert rest == ["  guide         docs/guides/operate.md", "stopped"]


_STUCK_JAVA = """\
#!/bin/sh
case "$*" in
  *-version*) echo "java.specification.version = 17\njava.home = {home}" >&2 ;;
  *) touch {home}/started; exec sleep 600 ;;
esac
"""


@pytest.mark.usefixtures("_compiled")
def test_a_signal_while_java_starts_ends_it_at_once_and_shows_stopped(
    embedded_postgres_url: str, tmp_path: Path
) -> None:
    """This Java never comes up: whoever waits for it waits for ever."""
    java = tmp_path / "java" / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text(_STUCK_JAVA.format(home=tmp_path / "java"))
    java.chmod(0o755)
    url = fresh_database(embedded_postgres_url)
    process = subprocess.Popen(
        [*LAKERUNNER, "ingest", "--listen", "127.0.0.1:0", "--home", str(tmp_path / "home")],
        env=clean_environment({"DATABASE_URL": url, "JAVA_HOME": str(tmp_path / "java")}),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    wait_until((tmp_path / "java" / "started").exists, "Java is started", START_SECONDS)
    started = psutil.Process(process.pid).children(recursive=True)
    assert "sleep" in {one.name() for one in started}
    process.send_signal(signal.SIGINT)
    output, errors = process.communicate(timeout=STOP_SECONDS)
    assert (process.returncode, output) == (0, "stopped\n")
    assert [json.loads(line)["message"] for line in errors.splitlines()] == ["stopped"]
    assert psutil.wait_procs(started, timeout=STOP_SECONDS)[1] == []
    assert list((tmp_path / "home" / "spark").glob("session-*")) == []
    drop_database(url)


@pytest.mark.usefixtures("_compiled")
def test_a_log_that_is_piped_is_json_alone(tmp_path: Path) -> None:
    process = subprocess.Popen(
        [*LAKERUNNER, *WORKER, str(tmp_path / "home")],
        env=clean_environment(),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    first = process.stdout.readline()
    process.send_signal(signal.SIGTERM)
    output, errors = process.communicate(timeout=STOP_SECONDS)
    lines = [json.loads(line) for line in errors.splitlines()]
    assert first.startswith("lakerunner query-worker is ready at http://127.0.0.1:")
    assert output.splitlines()[-1] == "stopped"
    assert [line["message"] for line in lines if line["level"] == "info"] == ["ready", "stopped"]
    assert lines[0]["url"] in first


def test_progress_is_one_line_of_a_terminal_and_nothing_elsewhere(tmp_path: Path) -> None:
    ours, theirs = pty.openpty()
    with os.fdopen(ours, "rb", buffering=0) as terminal, os.fdopen(theirs, "w") as output:
        screen = TerminalScreen(output)
        screen.progress("starting PostgreSQL")
        screen.progress("starting Spark")
        screen.report("compiled 3 kernels in 1 s")
        screen.show("ready")
        assert (
            b"".join(terminal.read(1) for _ in range(56))
            == b"starting PostgreSQL ...\r\x1b[Kstarting Spark ...\r\x1b[Kready\r\n"
        )
    with (tmp_path / "file").open("w") as output:
        screen = TerminalScreen(output)
        screen.progress("starting Spark")
        screen.report("compiled 3 kernels in 1 s")
        screen.show("ready")
    assert (tmp_path / "file").read_text() == "compiled 3 kernels in 1 s\nready\n"
