"""The environment of Spark's processes: what of ours the JVM and its Python workers may know.

Comes in: the environment of this process. Goes out: the variables that Java, Spark, Python and its libraries need. What
always holds: a variable that is not listed here does not pass, so a secret in one (DATABASE_URL, LAKERUNNER_WORKER_KEY,
AWS_SECRET_ACCESS_KEY) is in no process that runs a query, whatever Spark might be made to read. Tasks get the
credentials of the store with their work (objects/open.py, with_variables). `spark.executorEnv.NAME` in the setting
`spark_conf` gives workers a further variable.
"""

from __future__ import annotations

from collections.abc import Mapping

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
