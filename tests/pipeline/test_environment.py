"""What Spark's processes may know of our environment."""

from __future__ import annotations

import pytest

from lakerunner.pipeline.jvm import spark_variables


@pytest.mark.parametrize(
    "name",
    [
        *("PATH", "HOME", "LANG", "LC_ALL", "TZ", "TMPDIR", "JAVA_HOME", "SPARK_HOME", "PYSPARK_PYTHON", "PYTHONPATH"),
        *("NUMBA_BOUNDSCHECK", "OMP_NUM_THREADS", "LD_LIBRARY_PATH", "YARN_CONF_DIR", "KUBERNETES_SERVICE_HOST"),
        *("HTTPS_PROXY", "https_proxy", "no_proxy", "SSL_CERT_FILE", "_PYSPARK_DRIVER_CONN_INFO_PATH"),
    ],
)
def test_what_they_need_passes(name: str) -> None:
    assert spark_variables({name: "x"}) == {name: "x"}


@pytest.mark.parametrize(
    "name",
    [
        *("DATABASE_URL", "LAKERUNNER_WORKER_KEY", "LAKERUNNER_DATABASE_URL", "LAKERUNNER_STORE_OPTIONS", "PGPASSWORD"),
        *("AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AZURE_STORAGE_KEY", "GOOGLE_APPLICATION_CREDENTIALS"),
        *("GITHUB_TOKEN", "ANY_THING", "path", "secret_proxy", "XPATH", ""),
    ],
)
def test_anything_else_does_not(name: str) -> None:
    assert spark_variables({name: "x"}) == {}
