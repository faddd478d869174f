"""Spark for queries as the API starts it, in a process of its own, with tasks that know the language of tests."""

from __future__ import annotations

import os
import pickle
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

import psutil

from lakerunner.objects.open import StoreAddress
from lakerunner.pipeline.ask.lease import QuerySpark, ShareLimits, Shares
from lakerunner.pipeline.ask.process import QueryProcesses, ServeSettings, for_queries, heap_bytes
from lakerunner.pipeline.ask.run import AskLimits, TaskFunction
from lakerunner.services import spark_daemon
from lakerunner.services.spark_units import UnitSettings
from servers.lake import wait_until
from servers.spark import spark_settings

SECRETS = {"DATABASE_URL": "postgres://secret", "LAKERUNNER_WORKER_KEY": "secret", "AWS_SECRET_ACCESS_KEY": "secret"}


class SparkHost:
    """The processes, and what leases them."""

    def __init__(
        self,
        store: Path,
        directory: Path,
        seconds: float = 600.0,
        memory: str = "640m",
        conf: tuple[tuple[str, str], ...] = (),
        master: str = "local[2]",
    ) -> None:
        self.directory = directory
        self.reasons: list[str] = []
        plain = spark_settings(directory, master)
        spark = for_queries(replace(plain, driver_memory=memory, conf=(*plain.conf, *conf)), daemon=spark_daemon.MODULE)
        address = StoreAddress(store.as_uri())
        units = UnitSettings(address, memory, heap_bytes(memory), seconds, 1_000_000, 1 << 30, 64 << 20, 2)
        function = TaskFunction("query.spark_grep", "run_unit", pickle.dumps(units))
        settings = ServeSettings(spark, address, AskLimits(seconds, 100_000, memory), function)
        environment = os.environ | SECRETS | {"PYTHONPATH": str(Path(__file__).parents[1])}
        self.processes = QueryProcesses(lambda: settings, environment, self.reasons.append)
        self.spark = QuerySpark(self.processes, Shares(ShareLimits(wait_seconds=5.0)), seconds, slots=2)

    @property
    def pid(self) -> int:
        """Of the process, where there is one."""
        (child,) = self.processes._all
        return child.popen.pid

    @property
    def idle(self) -> int:
        """How many processes run no query."""
        return len(self.processes._idle)

    def settle(self) -> None:
        """Wait until every process is idle: one whose query was cancelled is given back when its jobs have ended."""
        wait_until(lambda: self.idle == len(self.processes._all), "idle processes", 180)

    def below(self) -> list[psutil.Process]:
        """The process, its JVM, the daemon, its workers and their sandboxes."""
        return below(self.pid)

    def python_workers(self) -> list[psutil.Process]:
        """Forks of the daemon, without it."""
        ours = {one.process.pid: one for one in known(self.below()) if spark_daemon.MODULE in one.command}
        return [one.process for one in ours.values() if one.parent in ours]


def below(pid: int) -> list[psutil.Process]:
    top = psutil.Process(pid)
    return [top, *(one for one in top.children(recursive=True) if not _has_ended(one))]


@dataclass(frozen=True)
class Known:
    """What a process knows, and whose child it is."""

    process: psutil.Process
    parent: int
    command: tuple[str, ...]
    variables: Mapping[str, str]
    nice: int


def known(processes: Iterable[psutil.Process]) -> list[Known]:
    """Look at each of them that has not ended meanwhile: Python workers and sandboxes come and go."""
    found = []
    for one in processes:
        with suppress(psutil.NoSuchProcess, psutil.ZombieProcess):
            found.append(Known(one, one.ppid(), tuple(one.cmdline()), one.environ(), one.nice()))
    return found


def _has_ended(one: psutil.Process) -> bool:
    try:
        return bool(one.status() == psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return True
