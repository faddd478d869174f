"""Puts tests/ on the path (for suites and servers) and starts the servers that several packages share."""

from __future__ import annotations

import os
import signal
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from hypothesis import HealthCheck, settings
from hypothesis.internal.conjecture import providers
from xdist.remote import Producer
from xdist.scheduler import LoadFileScheduling

TESTS = Path(__file__).resolve().parent
REPO = TESTS.parent
sys.path.insert(0, str(TESTS))

# Keep bytecode, also where the environment says not to (many containers do): without it every process of a crowd
# rewrites the assertions of all test modules, and every command that a test starts compiles our source again.
sys.dont_write_bytecode = False
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

from servers.kafka import KafkaBroker, kafka_broker  # noqa: E402
from servers.postgres import debian_postgres, embedded_postgres  # noqa: E402
from servers.seaweedfs import S3Server, seaweedfs  # noqa: E402
from servers.spark_archive import use_archive  # noqa: E402

Temporary = pytest.TempPathFactory
use_archive(REPO / ".cache" / "spark.jsa")  # `make test` writes it

# Examples are the same in every run, so that a landing is judged by its own change; `make test-all` draws new ones.
# No example is too slow: the first may compile a kernel, and the machine may have other things to do.
RANDOM = os.environ.get("EXAMPLES") == "random"
patient: dict[str, Any] = {"deadline": None, "suppress_health_check": [HealthCheck.too_slow]}
settings.register_profile("steady", derandomize=True, max_examples=35, **patient)
settings.register_profile("random", print_blob=True, **patient)
settings.load_profile("random" if RANDOM else "steady")
if not RANDOM:
    # Hypothesis draws some of its values from the constants of the modules that are loaded by now: those are others
    # with every change, and with every order of tests.
    pytest.MonkeyPatch().setattr(providers, "_get_local_constants", lambda: providers._local_constants)

# A shell's job in the background does not hear of Ctrl-C, nor would the programs it starts, which tests stop that way.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# What a test does not say a limit for may take as long as a busy machine takes; httpx gives up after five seconds.
for part in ("connect", "read", "write", "pool"):
    setattr(httpx._config.DEFAULT_TIMEOUT_CONFIG, part, 60.0)


# Files that share a server that takes long to start: one process of a crowd runs them all.
TOGETHER = {
    "tests/bus/test_backlog.py": "kafka",
    "tests/bus/test_kafka_bus.py": "kafka",
    "tests/end_to_end/test_promql_failures.py": "cluster",
    "tests/end_to_end/test_query_failures.py": "cluster",
}


# Files that take longest begin first: at the end of a run a process that still has one would keep the others waiting.
LONG = (
    "tests/end_to_end/test_slice.py",
    "tests/query/test_workers_http.py",
    "tests/logql/test_logql_conformance.py",
    "tests/services/test_repair.py",
    "tests/services/test_warm.py",
    "tests/bus/test_backlog.py",
    "tests/query/test_sandbox.py",
    "tests/query/test_metric_tiers.py",
    "tests/promql/test_conformance.py",
    "tests/api/test_keep.py",
    "tests/test_kernel_cache.py",
    "tests/test_wheel.py",
    "tests/index/test_embedded.py",
    "tests/pipeline/test_ingest.py",
    "tests/services/test_repair_law.py",
)


_FEWEST_EXAMPLES = 15


def pytest_itemcollected(item: pytest.Item) -> None:
    """Draw a third of the examples that a test asks for, unless they are new ones: more of those that are the same in
    every run find nothing that the first run did not. `make test-all` draws all."""
    test = getattr(item, "obj", None)
    own: settings | None = getattr(test, "_hypothesis_internal_use_settings", None)
    if test is None or own is None or RANDOM or getattr(test, "has_fewer_examples", False):
        return
    fewer = max(own.max_examples // 3, min(own.max_examples, _FEWEST_EXAMPLES))
    test._hypothesis_internal_use_settings = settings(own, max_examples=fewer)
    test.has_fewer_examples = True  # the items of one test share it


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Sort files: long ones first, then by how many tests they have."""
    files = [item.nodeid.partition("::")[0] for item in items]
    counts = Counter(files)
    rank = {file: n for n, file in enumerate(LONG)}
    order = sorted(range(len(items)), key=lambda n: (rank.get(files[n], len(LONG)), -counts[files[n]], files[n]))
    items[:] = [items[n] for n in order]


class Scheduling(LoadFileScheduling):
    """A file's tests run in one process, and so do files that stand together."""

    def _split_scope(self, nodeid: str) -> str:
        file = super()._split_scope(nodeid)
        return TOGETHER.get(file, file)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> Scheduling:
    return Scheduling(config, log)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say how many hostile inputs were tried (tests/hostile); the processes of a crowd report them with their tests."""
    counts: dict[str, int] = {}
    for reports in terminalreporter.stats.values():
        for report in reports:
            for name, count in getattr(report, "user_properties", ()):
                if name.startswith("hostile ") and report.when == "call":
                    counts[name.removeprefix("hostile ")] = counts.get(name.removeprefix("hostile "), 0) + count
    if counts:
        terminalreporter.write_line("hostile: " + ", ".join(f"{count} {name}" for name, count in counts.items()))


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """Real telemetry, beside the repo; not part of it."""
    data = REPO.parent / "shared" / "data" / "otlp"
    if not data.is_dir():
        pytest.skip("real telemetry is not there: ../shared/data/otlp is absent")
    return data


@pytest.fixture(scope="session")
def s3_server(tmp_path_factory: Temporary) -> Iterator[S3Server]:
    with seaweedfs(tmp_path_factory.mktemp("seaweedfs")) as server:
        yield server


@pytest.fixture(scope="session")
def kafka(tmp_path_factory: Temporary) -> Iterator[KafkaBroker]:
    with kafka_broker(tmp_path_factory.mktemp("kafka"), REPO / ".cache" / "kafka-libs") as broker:
        yield broker


@pytest.fixture(scope="session")
def embedded_postgres_url(tmp_path_factory: Temporary) -> Iterator[str]:
    with embedded_postgres(tmp_path_factory.mktemp("embedded_postgres")) as url:
        yield url


@pytest.fixture(scope="session")
def debian_postgres_url(tmp_path_factory: Temporary) -> Iterator[str]:
    with debian_postgres(tmp_path_factory.mktemp("debian_postgres")) as url:
        yield url
