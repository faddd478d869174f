"""PromQL from rollups over HTTP: three worker processes, segments in S3, windows made by the pipeline's own code. What
tiers give is what raw points give, whichever worker is killed; and what has expired is told, wherever one asks."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, replace
from typing import Any

import httpx
import numpy as np
import pytest

from lakerunner.api.workers.addresses import Addresses, lookups
from lakerunner.api.workers.worker_api import RemoteWorkers
from lakerunner.index.commit import Commit
from lakerunner.index.index import Index
from lakerunner.model.organization import DEFAULT_ORGANIZATION
from lakerunner.model.retention_policy import Cutoff
from lakerunner.model.segment import Segment
from lakerunner.model.tier import RAW, TIERS, source_of
from lakerunner.model.time import MAX_NS, MIN_NS
from lakerunner.pipeline.compact import CompactLimits
from lakerunner.pipeline.rollup_job import RollupWork, rollup_work
from lakerunner.promql.plan import PromqlQuestion
from lakerunner.series.values import Steps, Vector
from servers.lake import Lake, query_api
from suites.cluster import HOUR_NS, METRIC_HOURS, SERIES, START_NS, Cluster, cluster
from suites.queries import metric_queries

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]
OWN = DEFAULT_ORGANIZATION.id
START, HOUR, FIVE = START_NS // 1_000_000_000, 3600, 300
END = START + METRIC_HOURS * HOUR
# The query, its step, the tier that serves it, and whether every digit must be the same.
SERVED = [
    ("max_over_time(served_total[1h])", HOUR, "1h", True),
    ("last_over_time(served_total[5m])", FIVE, "5m", True),
    ("count by (zone) (served_total)", FIVE, "5m", True),
    ("sum by (zone) (rate(served_total[5m]))", FIVE, "5m", False),
    ("sum by (zone) (increase(served_total[1h]))", HOUR, "1h", False),
    ("avg_over_time(load[2m])", 60, "1m", True),
    ("max_over_time(rate(served_total[10m])[1h:10m])", HOUR, "5m", False),
]


@dataclass
class Tiered:
    cluster: Cluster
    api: Lake
    index: Index

    def ask(self, query: str, step: int, **given: Any) -> dict[str, Any]:
        asked = {"query": query, "start": START + HOUR, "end": END - HOUR, "step": step, "stats": "true", **given}
        response = httpx.post(f"{self.api.url}/prometheus/api/v1/query_range", data=asked, timeout=120)
        assert response.status_code == 200, response.text
        body: dict[str, Any] = response.json()
        return body


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tiered]:
    with cluster(tmp_path_factory.mktemp("tiers"), workers=3) as made:
        index = Index.open(made.environment["DATABASE_URL"], connections=2)
        with closing(index):
            roll_up(index, made)
            made.complete_workers()
            with query_api(made.directory / "api", made.environment) as api:
                yield Tiered(made, api, index)


@pytest.fixture(autouse=True)
def _all_workers(lake: Tiered) -> None:
    lake.cluster.complete_workers()


def roll_up(index: Index, made: Cluster) -> None:
    """Through all tiers."""
    touched: tuple[Segment, ...] = made.metrics
    for tier in TIERS:
        work = RollupWork(OWN, "tests", source_of(tier), tier, touched, touched)
        outcome = rollup_work(work, made.s3.address("lake"), CompactLimits(64 << 20, 1 << 30))
        assert outcome.error == ""
        rolled = tuple(one.id for one in touched)
        index.commit(Commit(outcome.segments, (), (), rolled=rolled, rolled_of=OWN))
        touched = outcome.segments


def numbers(body: dict[str, Any]) -> dict[str, list[tuple[float, str]]]:
    return {json.dumps(one["metric"]): [tuple(pair) for pair in one["values"]] for one in body["data"]["result"]}


def same(found: dict[str, Any], raw: dict[str, Any], *, exact: bool) -> None:
    assert found.keys() == raw.keys() != set()
    for series, points in found.items():
        assert [time for time, _ in points] == [time for time, _ in raw[series]]
        if exact:
            assert points == raw[series]
        else:
            values, others = ([float(value) for _, value in of] for of in (points, raw[series]))
            np.testing.assert_allclose(values, others, rtol=1e-12)


def reads(body: dict[str, Any]) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = body["data"]["stats"]["lakerunner"]["reads"]
    return found


@pytest.mark.parametrize(("query", "step", "tier", "exact"), SERVED)
def test_tiers_give_what_raw_points_give(lake: Tiered, query: str, step: int, tier: str, exact: bool) -> None:
    found, raw = lake.ask(query, step), lake.ask(query, step, tier="raw")
    same(numbers(found), numbers(raw), exact=exact)
    (read,) = reads(found)
    assert read["tier"] == tier
    assert {one["tier"] for one in read["read"]} == {tier}
    assert [one["tier"] for one in reads(raw)[0]["read"]] == ["raw"]
    assert "warnings" not in found
    stats, of_raw = (one["data"]["stats"]["lakerunner"] for one in (found, raw))
    assert stats["rows"] < of_raw["rows"] / 2


@pytest.mark.parametrize(("query", "step", "tier", "exact"), SERVED[:4])
def test_a_worker_that_is_killed_is_taken_over(lake: Tiered, query: str, step: int, tier: str, exact: bool) -> None:
    before = lake.ask(query, step)
    (worker,) = before["data"]["stats"]["lakerunner"]["workers"]
    lake.cluster.kill_worker(lake.cluster.ports[lake.cluster.names.index(worker)])
    after = lake.ask(query, step)
    assert after["data"]["result"] == before["data"]["result"]
    assert (reads(after)[0]["tier"], set(after["data"]["stats"]["lakerunner"]["workers"]) & {worker}) == (tier, set())
    same(numbers(after), numbers(lake.ask(query, step, tier="raw")), exact=exact)


def test_parts_of_series_on_all_three(lake: Tiered) -> None:
    """As a query over many rows is cut: each worker has some of the series; two of them then have all."""
    workers = RemoteWorkers(Addresses(lookups(",".join(lake.cluster.urls))), lake.cluster.secrets[0], 60)
    with closing(workers):
        engine = metric_queries(lake.index, workers, shard_rows=50)
        steps = Steps((START + HOUR) * 1000, (END - HOUR) * 1000, FIVE * 1000)
        question = PromqlQuestion("max_over_time(served_total[5m])", steps, False, END * 10**9)
        found = []
        for raw in (False, True):
            answer = engine.promql(OWN, replace(question, raw=raw))
            (group,) = answer
            assert isinstance(group.value, Vector)
            assert len(group.value) == SERIES
            assert len(answer.account.workers) == 3, answer.account
            assert set(answer.reads[0].tiles) == {RAW if raw else FIVE * 1000}
            found.append(group.value)
        lake.cluster.kill_worker(lake.cluster.ports[0])
        answer = engine.promql(OWN, question)
        (group,) = answer
        assert len(answer.account.workers) == 2
        assert isinstance(group.value, Vector)
        found.append(group.value)
    for other in found[1:]:
        assert list(other.labels) == list(found[0].labels)
        np.testing.assert_array_equal(other.values, found[0].values)
        np.testing.assert_array_equal(other.present, found[0].present)


def test_once_raw_points_have_expired(lake: Tiered) -> None:
    """The last test: tiers still serve what they served, and all else is told."""
    query, step, tier, _ = SERVED[0]
    before = lake.ask(query, step)
    cutoff = Cutoff("metrics", RAW, START_NS + 3 * HOUR_NS, MIN_NS, MIN_NS, MAX_NS)
    assert len(lake.index.sweep.expire(OWN, cutoff, [one.id for one in lake.cluster.metrics], END * 10**9)) == 3
    after = lake.ask(query, step)
    assert (after["data"]["result"], "warnings" in after, reads(after)[0]["tier"]) == (
        before["data"]["result"],
        False,
        tier,
    )
    told = (
        "PromQL warning: irate(load[5m]): raw points up to 2026-01-01 02:59:45 UTC have expired by retention and are "
        "not in this answer; rollups of them are left, but cannot answer it: irate needs every sample"
    )
    refused = lake.ask("irate(load[5m])", step)
    assert refused["warnings"] == [told]
    assert reads(refused)[0]["expired"] == "2026-01-01 02:59:45 UTC"
    assert "warnings" not in lake.ask("irate(load[5m])", step, start=START + 4 * HOUR)
    body = {"q": "irate(load[5m])", "s": (START + HOUR) * 1000, "e": END * 1000, "step": "1h"}
    events = httpx.post(f"{lake.api.url}/api/v1/metrics/query", json=body, timeout=60).text.strip().splitlines()
    done = json.loads(events[-1].removeprefix("data: "))
    assert (done["type"], done["data"]["warnings"]) == ("done", [told])
    times = ["--start", "2026-01-01T01:00:00Z", "--end", "2026-01-01T06:00:00Z", "--step", "1h"]
    shown = lake.api.command("promql", "irate(load[5m])", *times)
    assert (shown.returncode, shown.stderr.strip()) == (0, told)
    explained = lake.api.command("promql", "irate(load[5m])", *times, "--explain")
    assert "expired up to 2026-01-01 02:59:45 UTC" in explained.stdout
    counted = "SELECT count(*) AS n FROM metrics WHERE timestamp BETWEEN '2026-01-01' AND '2026-01-02'"
    gone = "metrics: rows up to 2026-01-01 02:59:45 UTC have expired by retention"
    for _ in range(2):  # the second time it is kept
        asked = lake.api.post_sql(counted).json()
        assert asked["warnings"] == [f"{gone}; rollups of them are left, which PromQL reads"]
        assert asked["rows"] == [{"n": 3 * 240 * (SERIES + 1)}]
