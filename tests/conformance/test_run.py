"""What `make conformance SCRIPTS=...` prints and returns: the total count comes last, whatever the scripts are."""

from __future__ import annotations

from pathlib import Path

import pytest

from conformance.run import main

RIGHT = "eval instant at 0 1 + 1\n  2\n"
FAILING = "eval instant at 0 1 + 1\n  3\n\neval instant at 0 2 + 2\n  4\n"
OF_NO_GRAMMAR = "lode 1m\n  m 1\n"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("CALLER", str(tmp_path))
    (tmp_path / "right.test").write_text(RIGHT)
    return tmp_path


def said(capsys: pytest.CaptureFixture[str]) -> list[str]:
    return capsys.readouterr().out.splitlines()


@pytest.mark.parametrize("named", ["right.test", "."])
def test_a_file_and_a_folder_named_from_where_the_caller_is(
    folder: Path, capsys: pytest.CaptureFixture[str], named: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder)
    assert main([named]) == 0
    assert said(capsys) == [f"{'right.test':32} 1 passed, 0 failed", "", "1 passed, 0 failed"]


def test_what_fails_is_shown_with_its_line(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "wrong.test").write_text(FAILING)
    assert main([str(folder)]) == 1
    lines = said(capsys)
    assert f"{folder}/wrong.test:1: 1 + 1" in lines
    assert lines[-1] == "2 passed, 1 failed"


@pytest.mark.parametrize(
    ("name", "content", "reason"),
    [
        ("grammar.test", OF_NO_GRAMMAR.encode(), "1: neither load, clear nor eval: lode 1m"),
        ("bytes.test", b"\xff\xfe\x00", "can't decode byte 0xff"),
        ("load.test", b"load 1m\n  m one\n", "2: one is no point"),
    ],
)
def test_a_script_that_cannot_be_read_is_one_failure_and_the_others_run(
    folder: Path, capsys: pytest.CaptureFixture[str], name: str, content: bytes, reason: str
) -> None:
    (folder / name).write_bytes(content)
    assert main([str(folder)]) == 2
    lines = said(capsys)
    assert f"{name:32} 0 passed, 1 failed" in lines
    assert f"{'right.test':32} 1 passed, 0 failed" in lines
    assert any(str(folder / name) in line and reason in line for line in lines)
    assert lines[-1] == "1 passed, 1 failed"


@pytest.mark.parametrize("name", ["nowhere.test", "nowhere", "right.promql"])
def test_what_is_not_there_or_of_no_language_is_named(
    folder: Path, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    (folder / "right.promql").write_text(RIGHT)
    assert main([str(folder / name), "right.test"]) == 2
    lines = said(capsys)
    assert any(str(folder / name) in line for line in lines)
    assert lines[-1] == "1 passed, 1 failed"


def test_a_folder_without_scripts_is_no_success(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "empty").mkdir()
    assert main([str(folder / "empty")]) == 2
    assert said(capsys)[-1] == "0 passed, 0 failed"
