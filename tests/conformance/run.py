"""Runs scripts through the engine: a line for each file, what failed, and the count of all.

    python -m conformance.run [FILE-OR-FOLDER ...]

Without arguments: the scripts beside the repo (../shared/conformance) in the languages that we have, and our own.
The exit code is 0 when all passed, 1 when some failed or the ledger (ledger.py) lists what passes, 2 when a script is
wrong or there is none.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from conformance.check import problem
from conformance.ledger import Ledger
from conformance.notation import ScriptError
from conformance.script import Case, read_script
from conformance.subject import EngineSubject

REPO = Path(__file__).resolve().parents[2]
SHARED = REPO.parent / "shared" / "conformance"
OWN = REPO / "tests"
LEDGER = Path(__file__).with_name("ledger.txt")


@dataclass(frozen=True)
class Failure:
    case: Case
    reason: str

    def __str__(self) -> str:
        return f"{self.case.path}:{self.case.line}: {self.case.query}\n    {self.reason}"


@dataclass(frozen=True)
class Result:
    path: Path
    passed: int
    failures: tuple[Failure, ...]


def run_promql(path: Path) -> Result:
    subject = EngineSubject()
    cases = read_script(path)
    failures = []
    for case in cases:
        try:
            reason = problem(case, subject)
        except Exception as crash:  # a crash is a failure of its case, not the end of the run
            reason = f"crashed: {type(crash).__name__}: {crash}"
        if reason:
            failures.append(Failure(case, reason))
    return Result(path, len(cases) - len(failures), tuple(failures))


@dataclass(frozen=True)
class Language:
    """Its scripts lie in the folder of its name, beside the repo and in tests/."""

    name: str
    run: Callable[[Path], Result]


LANGUAGES: Mapping[str, Language] = {".test": Language("promql", run_promql)}


def scripts(named: Sequence[str]) -> list[Path]:
    """Those of the names, folders taken apart; without names all there are."""
    if named:
        roots = [_place(name) for name in named]
        missing = [str(root) for root in roots if not root.exists()]
        if missing:
            raise ScriptError(f"not there: {', '.join(missing)}")
    else:
        roots = [place / one.name for one in LANGUAGES.values() for place in (SHARED, OWN)]
    found = [path for root in roots for path in (sorted(root.rglob("*")) if root.is_dir() else [root])]
    return [path for path in found if path.is_file() and (path.suffix in LANGUAGES or path in roots)]


def _place(name: str) -> Path:
    """Relative to where we are, or to where `make -C` was called from."""
    here = Path(name)
    return here if here.exists() else Path(os.environ.get("CALLER", ".")) / name


def run(path: Path) -> Result:
    if path.suffix not in LANGUAGES:
        raise ScriptError(f"{path}: of no language we have ({', '.join(LANGUAGES)})")
    return LANGUAGES[path.suffix].run(path)


def main(named: Sequence[str]) -> int:
    try:
        paths = scripts(named)
        if not named and not SHARED.is_dir():
            print(f"{SHARED} is not there: only our own scripts are run")
        if not paths:
            print("no scripts to run")
            return 2
        results = [_reported(run(path)) for path in paths]
    except (ScriptError, UnicodeDecodeError) as error:
        print(error, file=sys.stderr)
        return 2
    ledger = Ledger.read(LEDGER)
    wrong = ledger.wrong({failure.case.place: failure.reason for one in results for failure in one.failures}, paths)
    failures = [failure for one in results for failure in one.failures]
    for line in (*failures, *wrong):
        print(f"\n{line}")
    print(f"\n{sum(one.passed for one in results)} passed, {len(failures)} failed")
    return 1 if failures or wrong else 0


def _reported(result: Result) -> Result:
    print(f"{result.path.name:32} {result.passed} passed, {len(result.failures)} failed", flush=True)
    return result


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
