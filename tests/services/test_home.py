"""What a lake keeps on disk is its owner's alone, made with whatever umask."""

from __future__ import annotations

import os
import stat
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from lakerunner.model.errors import UserError
from lakerunner.services.home import make_private
from servers.lake import LAKERUNNER, clean_environment

ROOT = os.geteuid() == 0


def mode(path: Path) -> int:
    return stat.S_IMODE(path.lstat().st_mode)


def made(directory: Path, **modes: int) -> Path:
    """A home with these entries: a directory where the name has no dot."""
    directory.mkdir()
    directory.chmod(0o755)
    for name, bits in modes.items():
        entry = directory / name
        entry.write_text("x") if "_" in name else entry.mkdir()
        entry.chmod(bits)
    return directory


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """One that any user can pass; pytest's own are the caller's alone."""
    with tempfile.TemporaryDirectory() as name:
        os.chmod(name, 0o755)
        yield Path(name)


def test_a_new_home_is_closed(tmp_path: Path) -> None:
    make_private(tmp_path / "a" / "home", embedded=False)
    assert mode(tmp_path / "a" / "home") == 0o700


def test_a_home_of_an_earlier_version_is_closed_with_what_lies_in_it(tmp_path: Path) -> None:
    home = made(tmp_path / "home", store=0o755, cache=0o750, a_file=0o644, a_script=0o755)
    (home / "elsewhere").symlink_to(tmp_path)
    before = mode(tmp_path)
    make_private(home, embedded=False)
    assert [mode(home / name) for name in (".", "store", "cache", "a_file", "a_script")] == [
        *(0o700, 0o700, 0o700, 0o600, 0o700)
    ]
    assert mode(tmp_path) == before


def test_a_directory_of_other_things_is_left_and_warned_of(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    shared = made(tmp_path / "shared", documents=0o755)
    make_private(shared, embedded=False)
    assert (mode(shared), mode(shared / "documents")) == (0o755, 0o755)
    assert [record.getMessage() for record in caplog.records] == [
        "home is accessible to other users; its mode was not changed, because it belongs to "
        "another user or holds other files"
    ]


def test_an_empty_directory_becomes_ours(tmp_path: Path) -> None:
    empty = made(tmp_path / "empty")
    make_private(empty, embedded=False)
    assert mode(empty) == 0o700


@pytest.mark.skipif(not ROOT, reason="only root gives the server to another user")
def test_root_lets_the_embedded_server_pass_and_nobody_read(tmp_path: Path) -> None:
    home = made(tmp_path / "home", postgres=0o755, store=0o755)
    make_private(home, embedded=True)
    assert [mode(home / name) for name in (".", "postgres", "store")] == [0o711, 0o711, 0o700]
    make_private(home, embedded=False)
    assert [mode(home / name) for name in (".", "postgres", "store")] == [0o700, 0o700, 0o700]


def test_what_a_command_makes_is_closed_whatever_the_umask(open_folder: Path) -> None:
    """A real process with the embedded server, which as root is another user's and needs no capability to get there."""
    home = open_folder / "home"
    command = [*LAKERUNNER, "orgs", "create", "acme", "--home", str(home)]
    before = os.umask(0o022)
    try:
        done = subprocess.run(
            command, env=clean_environment(), capture_output=True, text=True, timeout=120, check=False
        )
    finally:
        os.umask(before)
    assert (done.returncode, done.stderr) == (0, "")
    passable = {home, home / "postgres"} if ROOT else set()
    for path in (home, *home.rglob("*")):
        assert mode(path) & 0o077 == (0o011 if path in passable else 0), path


def test_a_home_that_cannot_be_created_is_refused() -> None:
    """In /proc even root, who may write everywhere, can make no directory."""
    with pytest.raises(UserError, match=r"home /proc/lake cannot be created: .*: choose another directory with --home"):
        make_private(Path("/proc/lake"), embedded=True)


def test_a_limit_of_open_files_that_is_too_low_is_named(tmp_path: Path) -> None:
    command = f"ulimit -n 256; exec {' '.join(LAKERUNNER)} up --home {tmp_path}/lake"
    ended = subprocess.run(["sh", "-c", command], capture_output=True, text=True, env=clean_environment(), timeout=60)
    reason = "error: a process may open 256 files here, 512 are needed: run `ulimit -n 4096` before\n"
    assert (ended.returncode, ended.stderr) == (1, reason)
    assert list(tmp_path.iterdir()) == []
