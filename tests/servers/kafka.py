"""A real Kafka broker (KRaft, one node, one process) for tests, from Maven Central's jars.

The jars are fetched once, by the package resolver that comes with Spark, so no Maven is needed; they are moved
into place whole, so an interrupted fetch leaves nothing half. The broker keeps its data over kill() and start().
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyspark
import pytest

from lakerunner.pipeline.jvm import java_home
from servers.ports import free_ports

_PACKAGES = (
    "org.apache.kafka:kafka_2.13:4.3.1",
    "org.apache.logging.log4j:log4j-slf4j-impl:2.25.1",
    "org.apache.logging.log4j:log4j-core:2.25.1",
)
_FETCH_SECONDS = 300
_START_SECONDS = 120
_STARTS = 3
_CLUSTER = "LakerunnerTestBroker0A"  # 16 bytes in base64

_FETCH = """
import sys
from pyspark.sql import SparkSession
builder = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false")
builder.config("spark.jars.ivy", sys.argv[1]).config("spark.jars.packages", sys.argv[2]).getOrCreate().stop()
"""
# How Ivy says that the repository, not we, is the trouble.
_UNREACHABLE = ("unresolved dependenc", "Server access error", "UnknownHostException", "ConnectException")

_PROPERTIES = """
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:{controller}
controller.listener.names=CONTROLLER
listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}
advertised.listeners=PLAINTEXT://127.0.0.1:{port}
listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT
log.dirs={directory}/data
auto.create.topics.enable=false
default.replication.factor=1
offsets.topic.replication.factor=1
offsets.topic.num.partitions=4
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
group.initial.rebalance.delay.ms=0
log.cleaner.dedupe.buffer.size=16777216
broker.session.timeout.ms=9000
broker.heartbeat.interval.ms=500
"""
_LOGGING = """
appender.console.type=Console
appender.console.name=console
appender.console.layout.type=PatternLayout
appender.console.layout.pattern=%d %p %m (%c)%n
rootLogger.level=INFO
rootLogger.appenderRef.console.ref=console
"""


class KafkaBroker:
    """`servers` is the address for clients. `kill` is kill -9; `start` returns once the broker serves."""

    def __init__(self, directory: Path, libraries: Path, java: Path) -> None:
        port, controller = free_ports(2)
        self.servers = f"127.0.0.1:{port}"
        self.log = directory / "broker.log"
        self._properties = directory / "server.properties"
        self._properties.write_text(_PROPERTIES.format(port=port, controller=controller, directory=directory))
        logging = directory / "log4j2.properties"
        logging.write_text(_LOGGING)
        small = ("-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
        self._java = (str(java), *small, f"-Dlog4j2.configurationFile={logging}", "-cp", f"{libraries}/*")
        self._process: subprocess.Popen[bytes] | None = None
        self._storage("format", "-t", _CLUSTER, "-c", str(self._properties))

    def start(self) -> None:
        offset = self.log.stat().st_size if self.log.exists() else 0
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                [*self._java, "kafka.Kafka", str(self._properties)], stdout=log, stderr=subprocess.STDOUT
            )
        deadline = time.monotonic() + _START_SECONDS
        while b"Kafka Server started" not in self.log.read_bytes()[offset:]:
            if self._process.poll() is not None or time.monotonic() > deadline:
                self.kill()
                raise RuntimeError(f"the Kafka broker did not start:\n{self.log.read_text()[-4000:]}")
            time.sleep(0.05)

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def _storage(self, *arguments: str) -> None:
        command = [*self._java, "kafka.tools.StorageTool", *arguments]
        answer = subprocess.run(command, capture_output=True, text=True, timeout=_START_SECONDS, check=False)
        if answer.returncode:
            raise RuntimeError(f"the Kafka storage tool failed:\n{answer.stdout}{answer.stderr}")


@contextmanager
def kafka_broker(directory: Path, libraries: Path) -> Iterator[KafkaBroker]:
    """A started broker with its data in `directory` and its jars in `libraries` (kept between runs)."""
    home = java_home(os.environ, libraries.parent / "java")
    if not libraries.is_dir():
        _fetch(libraries, home)
    broker = _started(directory, libraries, home / "bin" / "java")
    try:
        yield broker
    finally:
        broker.kill()


def _started(directory: Path, libraries: Path, java: Path) -> KafkaBroker:
    """On other ports where another server was faster: between the choice and the broker are two Java processes."""
    for attempt in range(1, _STARTS + 1):
        work = directory / str(attempt)
        work.mkdir(parents=True)
        broker = KafkaBroker(work, libraries, java)
        try:
            broker.start()
            break
        except RuntimeError:
            if attempt == _STARTS or "Address already in use" not in broker.log.read_text():
                raise
    return broker


def _fetch(libraries: Path, home: Path) -> None:
    libraries.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=libraries.parent, prefix="kafka-fetch-") as draft:
        answer = subprocess.run(
            [sys.executable, "-c", _FETCH, draft, ",".join(_PACKAGES)],
            env=os.environ | {"JAVA_HOME": str(home)},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=_FETCH_SECONDS,
            check=False,
        )
        if answer.returncode:
            reason = f"Kafka's jars could not be fetched:\n{answer.stdout[-4000:]}"
            if any(sign in answer.stdout for sign in _UNREACHABLE):
                pytest.skip(reason)
            raise RuntimeError(reason)
        jars = Path(draft, "jars")
        for scala in Path(pyspark.__file__).parent.glob("jars/scala-library-*.jar"):  # Spark's Ivy leaves it out
            shutil.copy(scala, jars)
        try:
            jars.rename(libraries)
        except OSError:
            if not libraries.is_dir():  # else another run was faster
                raise
