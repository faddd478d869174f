from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import psutil
import psycopg
import pytest

from lakerunner.index.embedded import EmbeddedPostgres
from lakerunner.index.migrate import load_migrations
from lakerunner.index.programs import server_account
from lakerunner.model.errors import Unavailable, UserError
from servers.lake import wait_until

ROOT = os.geteuid() == 0
MIGRATIONS = [migration.name for migration in load_migrations()]
HOLD = """
import sys, time, pathlib, psycopg
from lakerunner.index.embedded import EmbeddedPostgres
url = EmbeddedPostgres(pathlib.Path(sys.argv[1])).start()
with psycopg.connect(url) as connection:
    connection.execute("CREATE TABLE kept AS SELECT generate_series(1, 1000) AS n")
print(url, flush=True)
time.sleep(300)
"""
START = """
import sys, pathlib
from lakerunner.index.embedded import EmbeddedPostgres
from lakerunner.index.index import Index
with EmbeddedPostgres(pathlib.Path(sys.argv[1])) as url:
    index = Index.open(url)
    print(index.migrate())
    index.close()
"""


def rows_kept(url: str) -> int:
    with psycopg.connect(url) as connection:
        row = connection.execute("SELECT count(*) FROM kept").fetchone()
    assert row is not None
    return int(row[0])


def shown(url: str, setting: str) -> str:
    with psycopg.connect(url) as connection:
        row = connection.execute(f"SHOW {setting}").fetchone()
    assert row is not None
    return str(row[0])


def server_pid(directory: Path) -> int:
    return int((directory / "data" / "postmaster.pid").read_text().split("\n")[0])


def runs(pid: int) -> bool:
    """A process that ended and was not yet collected by its parent does not run."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes() != b""
    except (FileNotFoundError, ProcessLookupError):
        return False


def start_elsewhere(directory: Path, user: int | None = None) -> subprocess.CompletedProcess[str]:
    """In another process; of another user, who still reaches our Python wherever it is installed."""
    reach = ["--inh-caps=+dac_override", "--ambient-caps=+dac_override"]
    prefix = ["setpriv", f"--reuid={user}", f"--regid={user}", "--clear-groups", *reach] if user else []
    command = [*prefix, sys.executable, "-c", START, str(directory)]
    return subprocess.run(command, text=True, capture_output=True, timeout=240)


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A folder that any user reaches and writes to; pytest's own are the caller's alone."""
    with tempfile.TemporaryDirectory() as name:
        os.chmod(name, 0o777)
        yield Path(name)


def test_it_starts_keeps_its_data_and_stops(tmp_path: Path) -> None:
    server = EmbeddedPostgres(tmp_path / "deep" / "postgres")
    url = server.start()
    assert server.start() == url
    with psycopg.connect(url) as connection:
        connection.execute("CREATE TABLE kept AS SELECT generate_series(1, 10) AS n")
        assert connection.execute("SHOW fsync").fetchone() == ("on",)
        assert connection.execute("SHOW synchronous_commit").fetchone() == ("on",)
        assert connection.execute("SHOW listen_addresses").fetchone() == ("127.0.0.1",)
        assert connection.execute("SHOW server_encoding").fetchone() == ("UTF8",)
    pid = server_pid(server.directory)
    server.stop()
    server.stop()
    wait_until(lambda: not runs(pid), "the server's end: its file goes a moment before it does", 60)
    assert "database system is shut down" in (server.directory / "data" / "server.log").read_text()
    with EmbeddedPostgres(server.directory) as again:
        assert rows_kept(again) == 10


def test_it_comes_back_where_it_was_unless_another_is_there(tmp_path: Path) -> None:
    server = EmbeddedPostgres(tmp_path)
    url = server.start()
    server.stop()
    assert server.start() == url
    server.stop()
    with socket.socket() as taken:
        taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        taken.bind(("127.0.0.1", urlsplit(url).port))
        taken.listen()
        moved = server.start()
    with psycopg.connect(moved) as connection:
        assert connection.execute("SELECT 1").fetchone() == (1,)
    server.stop()
    assert urlsplit(moved).port != urlsplit(url).port


def test_only_who_knows_the_password_gets_in(tmp_path: Path) -> None:
    with EmbeddedPostgres(tmp_path) as url:
        parts = urlsplit(url)
        assert parts.hostname == "127.0.0.1"
        for password in ("", "guess"):
            with pytest.raises(psycopg.OperationalError):
                psycopg.connect(url.replace(f":{parts.password}@", f":{password}@"))
        assert (tmp_path / "password").stat().st_mode & 0o077 == 0
        assert (tmp_path / "data").stat().st_mode & 0o077 == 0


def test_a_start_prints_nothing(tmp_path: Path) -> None:
    result = start_elsewhere(tmp_path)
    assert (result.returncode, result.stdout, result.stderr) == (0, f"{MIGRATIONS}\n", "")


def test_a_server_left_behind_by_a_killed_process_is_taken_over(tmp_path: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", HOLD, str(tmp_path)], stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout is not None
        left = holder.stdout.readline().strip()
        pid = server_pid(tmp_path)
        assert runs(pid)
        holder.send_signal(signal.SIGKILL)
    assert rows_kept(left) == 1000  # it runs on without its process
    with EmbeddedPostgres(tmp_path) as url:
        assert server_pid(tmp_path) != pid
        assert rows_kept(url) == 1000
        wait_until(lambda: not runs(pid), "the end of the server before", 60)


def test_a_killed_server_and_process_lose_nothing(tmp_path: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", HOLD, str(tmp_path)], stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout is not None
        holder.stdout.readline()
        parts = psutil.Process(server_pid(tmp_path)).children(recursive=True)
        os.kill(server_pid(tmp_path), signal.SIGKILL)
        holder.send_signal(signal.SIGKILL)
    assert psutil.wait_procs(parts, timeout=60)[1] == []  # until then they hold its memory, and no other can start
    with EmbeddedPostgres(tmp_path) as url:
        assert rows_kept(url) == 1000
        if sys.platform == "linux":  # else the start waits for a sync of each of a thousand files
            assert shown(url, "recovery_init_sync_method") == "syncfs"


def test_a_directory_has_one_process_at_a_time(tmp_path: Path) -> None:
    with EmbeddedPostgres(tmp_path) as url:
        result = start_elsewhere(tmp_path)
        assert result.returncode != 0
        assert f"UserError: process {os.getpid()} runs the embedded PostgreSQL in {tmp_path}" in result.stderr
        with pytest.raises(UserError, match=f"process {os.getpid()} runs"):
            EmbeddedPostgres(tmp_path).start()
        psycopg.connect(url).close()
    assert start_elsewhere(tmp_path).returncode == 0


def test_a_stale_pid_file_harms_no_other_process(tmp_path: Path) -> None:
    """After a restart of a container the number in postmaster.pid may be anyone's."""
    with EmbeddedPostgres(tmp_path):
        pid_file = (tmp_path / "data" / "postmaster.pid").read_text()
    owner = (tmp_path / "data").stat().st_uid
    user = owner if owner != os.geteuid() else None
    with subprocess.Popen(["sleep", "300"], user=user) as bystander:
        (tmp_path / "data" / "postmaster.pid").write_text(f"{bystander.pid}\n" + pid_file.split("\n", 1)[1])
        with EmbeddedPostgres(tmp_path) as url:
            psycopg.connect(url).close()
        assert bystander.poll() is None
        bystander.kill()


def test_an_interrupted_first_start_begins_anew(tmp_path: Path) -> None:
    (tmp_path / "data.new").mkdir()
    (tmp_path / "data.new" / "PG_VERSION").write_text("18\n")
    (tmp_path / "password").write_text("of a cluster that never was")
    with EmbeddedPostgres(tmp_path) as url:
        psycopg.connect(url).close()


def test_a_directory_that_cannot_be_used_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not a folder")
    with pytest.raises(UserError, match=rf"cannot use {tmp_path}/file/postgres: Not a directory"):
        EmbeddedPostgres(tmp_path / "file" / "postgres").start()


def test_a_server_that_cannot_start_says_why_and_frees_the_directory(tmp_path: Path) -> None:
    with EmbeddedPostgres(tmp_path):
        pass
    configuration = tmp_path / "data" / "postgresql.conf"
    before = configuration.read_text()
    configuration.write_text("no_such_setting = 1\n")
    with pytest.raises(Unavailable, match=r"did not start: .*no_such_setting"):
        EmbeddedPostgres(tmp_path).start()
    configuration.write_text(before)
    with EmbeddedPostgres(tmp_path) as url:
        psycopg.connect(url).close()


def test_data_of_another_major_version_are_refused_before_anything_starts(tmp_path: Path) -> None:
    with EmbeddedPostgres(tmp_path):
        pass
    (tmp_path / "data" / "PG_VERSION").write_text("17\n")
    before = sorted((path, path.stat().st_mtime_ns) for path in tmp_path.rglob("*"))
    with pytest.raises(UserError) as refusal:
        EmbeddedPostgres(tmp_path).start()
    assert str(refusal.value) == (
        f"the data in {tmp_path}/data was written by PostgreSQL 17, this Lakerunner comes "
        "with PostgreSQL 18: run `lakerunner backup` with the Lakerunner that wrote it, then "
        "`lakerunner restore` with this one"
    )
    assert sorted((path, path.stat().st_mtime_ns) for path in tmp_path.rglob("*")) == before


def test_a_copy_works_if_its_server_was_stopped_and_is_refused_if_it_ran(tmp_path: Path) -> None:
    first, running, stopped = tmp_path / "first", tmp_path / "running", tmp_path / "stopped"
    with EmbeddedPostgres(first) as url:
        with psycopg.connect(url) as connection:
            connection.execute("CREATE TABLE kept AS SELECT generate_series(1, 10) AS n")
        subprocess.run(["cp", "-a", first, running], check=True)
        for _ in range(2):  # the refusal does not wear off
            with pytest.raises(
                UserError, match=f"{running} was copied while its lake was running.* `lakerunner backup`"
            ):
                EmbeddedPostgres(running).start()
        assert rows_kept(url) == 10
    subprocess.run(["cp", "-a", first, stopped], check=True)
    with EmbeddedPostgres(stopped) as url:
        assert rows_kept(url) == 10
    first.rename(tmp_path / "moved")
    with EmbeddedPostgres(tmp_path / "moved") as url:
        assert rows_kept(url) == 10


def test_a_copy_of_a_directory_that_an_older_version_ran_is_refused_too(tmp_path: Path) -> None:
    """Older versions wrote no mark into `lock`, only their process id."""
    first, killed, running, stopped = (tmp_path / name for name in ("first", "killed", "running", "stopped"))
    with subprocess.Popen([sys.executable, "-c", HOLD, str(first)], stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout is not None
        holder.stdout.readline()
        (first / "lock").write_text("123\n")
        subprocess.run(["cp", "-a", first, running], check=True)
        for _ in range(2):
            with pytest.raises(UserError, match=f"{running} was copied while its lake was running"):
                EmbeddedPostgres(running).start()
        parts = psutil.Process(server_pid(first)).children(recursive=True)
        os.kill(server_pid(first), signal.SIGKILL)
        holder.send_signal(signal.SIGKILL)
    assert psutil.wait_procs(parts, timeout=60)[1] == []
    first.rename(killed)
    with EmbeddedPostgres(killed) as url:
        assert rows_kept(url) == 1000
    (killed / "lock").write_text("123\n")
    subprocess.run(["cp", "-a", killed, stopped], check=True)
    with EmbeddedPostgres(stopped) as url:
        assert rows_kept(url) == 1000
    (running / "lock").unlink()  # as the message says, where nothing ran while it was copied
    with EmbeddedPostgres(running) as url:
        assert rows_kept(url) == 1000


@pytest.mark.skipif(not ROOT, reason="only root can be another user")
def test_an_ordinary_user_runs_it_as_himself(open_folder: Path) -> None:
    result = start_elsewhere(open_folder / "postgres", user=65534)
    assert (result.returncode, result.stdout, result.stderr) == (0, f"{MIGRATIONS}\n", "")
    assert (open_folder / "postgres" / "data").stat().st_uid == 65534
    with EmbeddedPostgres(open_folder / "postgres") as url:  # and root goes on with it, as its owner
        psycopg.connect(url).close()
    assert (open_folder / "postgres" / "data").stat().st_uid == 65534


@pytest.mark.skipif(not ROOT, reason="only root can be another user")
def test_a_user_without_a_name_is_told(open_folder: Path) -> None:
    result = start_elsewhere(open_folder / "postgres", user=54321)
    assert result.returncode != 0
    assert "UserError: user id 54321 has no name" in result.stderr
    assert "DATABASE_URL" in result.stderr


@pytest.mark.skipif(not ROOT, reason="root alone gives the server to another user")
def test_root_keeps_its_folders_closed(tmp_path: Path, open_folder: Path) -> None:
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o700)
    program = Path(sys.executable)
    with EmbeddedPostgres(closed / "postgres") as url:
        psycopg.connect(url).close()
        assert closed.stat().st_mode & 0o777 == 0o700
        assert (closed / "postgres" / "data").stat().st_uid != 0
    assert server_account(closed / "postgres" / "data", program).reach != ()
    assert server_account(open_folder / "data", Path("/bin/sh")).reach == ()
