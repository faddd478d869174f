"""Runs scripts and tables through the engine: a line for each file, what failed, and the count of all.

    python -m conformance.run [FILE-OR-FOLDER ...]

Without arguments: the scripts beside the repo (../shared/conformance) in the languages that we have, and our own.
The count is the last line in any case; a script that cannot be read counts as one that failed, and the others run.
The exit code is 0 when all passed, 1 when some failed or the ledger (ledger.py) lists what passes, 2 when a script
cannot be read or there is none.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from conformance.check import problem
from conformance.ledger import Ledger
from conformance.logql_check import log_problem
from conformance.logql_script import read_logql_script
from conformance.logql_subject import EngineLogSubject
from conformance.notation import ScriptError
from conformance.script import ScriptItem, read_script
from conformance.subject import EngineSubject
from conformance.tables import is_table, problem_of_row, read_table

REPO = Path(__file__).resolve().parents[2]
SHARED = REPO.parent / "shared" / "conformance"
OWN = REPO / "tests"
LEDGER = Path(__file__).with_name("ledger.txt")


@dataclass(frozen=True)
class Failure:
    case: ScriptItem
    reason: str

    def __str__(self) -> str:
        return f"{self.case.path}:{self.case.line}: {self.case.query}\n    {self.reason}"


@dataclass(frozen=True)
class Result:
    """The result of one script. `unread` says why it could not be read; then nothing of it ran."""

    path: Path
    passed: int
    failures: tuple[Failure, ...]
    unread: str = ""

    @property
    def failed(self) -> int:
        return 1 if self.unread else len(self.failures)


def run_promql(path: Path) -> Result:
    subject = EngineSubject()
    return _run_all(path, read_script(path), lambda case: problem(case, subject))


def run_logql(path: Path) -> Result:
    cases = read_logql_script(path)
    with EngineLogSubject() as subject:
        return _run_all(path, cases, lambda case: log_problem(case, subject))


def run_table(path: Path) -> Result:
    return _run_all(path, read_table(path), problem_of_row)


Item = TypeVar("Item", bound=ScriptItem)


def _run_all(path: Path, items: Sequence[Item], problem: Callable[[Item], str | None]) -> Result:
    failures = []
    for item in items:
        try:
            reason = problem(item)
        except Exception as crash:  # a crash fails its case and does not end the run
            reason = f"crashed: {type(crash).__name__}: {crash}"
        if reason:
            failures.append(Failure(item, reason))
    return Result(path, len(items) - len(failures), tuple(failures))


@dataclass(frozen=True)
class Language:
    """A language of scripts. They are in the folder of its name, beside the repo and in tests/. `takes`: which files
    with its suffix."""

    name: str
    run: Callable[[Path], Result]
    takes: Callable[[Path], bool] = lambda _: True


LANGUAGES: Mapping[str, Language] = {
    ".test": Language("promql", run_promql),
    ".logqltest": Language("logql", run_logql),
    ".jsonl": Language("logql", run_table, is_table),
}


def scripts(named: Sequence[str], language: str = "") -> list[Path]:
    """Return the named scripts, existing or not, with folders expanded; without names all scripts, or all of one
    language."""
    if named:
        roots = [_place(name) for name in named]
    else:
        folders = dict.fromkeys(one.name for one in LANGUAGES.values() if language in ("", one.name))
        places = (place / folder for folder in folders for place in (SHARED, OWN))
        roots = [place for place in places if place.is_dir()]
    found = [path for root in roots for path in (sorted(root.rglob("*")) if root.is_dir() else [root])]
    return [path for path in found if path in roots or (path.is_file() and _is_script(path))]


def _is_script(path: Path) -> bool:
    return path.suffix in LANGUAGES and LANGUAGES[path.suffix].takes(path)


def _place(name: str) -> Path:
    """Resolve a path relative to the current folder, or to that from which `make -C` was called."""
    here = Path(name)
    return here if here.exists() else Path(os.environ.get("CALLER", ".")) / name


def run(path: Path) -> Result:
    if not path.exists():
        raise ScriptError(f"{path}: not there")
    if path.suffix not in LANGUAGES:
        raise ScriptError(f"{path}: of no language we have ({', '.join(LANGUAGES)})")
    return LANGUAGES[path.suffix].run(path)


def main(named: Sequence[str]) -> int:
    if not named and not SHARED.is_dir():
        print(f"{SHARED} is not there: only our own scripts are run")
    paths = scripts(named)
    if not paths:
        print("no scripts to run")
    results = [_reported(path) for path in paths]
    failures = [failure for one in results for failure in one.failures]
    wrong = Ledger.read(LEDGER).wrong({failure.case.place: failure.reason for failure in failures}, paths)
    unread = [one.unread for one in results if one.unread]
    for line in (*failures, *wrong, *unread):
        print(f"\n{line}")
    print(f"\n{sum(one.passed for one in results)} passed, {sum(one.failed for one in results)} failed")
    return 2 if unread or not paths else 1 if failures or wrong else 0


def _reported(path: Path) -> Result:
    try:
        result = run(path)
    except (ScriptError, OSError, ValueError) as error:  # ValueError: not UTF-8
        reason = str(error)
        result = Result(path, 0, (), reason if str(path) in reason else f"{path}: {reason}")
    print(f"{path.name:32} {result.passed} passed, {result.failed} failed", flush=True)
    return result


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
