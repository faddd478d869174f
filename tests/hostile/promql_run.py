"""Send hostile PromQL as A and judge the answers."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import httpx

from hostile.inputs import PromqlQuery, filled
from hostile.two_tenants import Fault, TwoTenants

AT_ONCE = 3


def run_promql(lake: TwoTenants, given: Sequence[PromqlQuery]) -> list[Fault]:
    with ThreadPoolExecutor(AT_ONCE) as pool:
        return [fault for faults in pool.map(lambda one: _faults_of(lake, one), given) for fault in faults]


def _faults_of(lake: TwoTenants, query: PromqlQuery) -> list[Fault]:
    form = {name: filled(value, lake.facts) for name, value in query.parameters.items()}
    path = filled(query.path, lake.facts)
    try:
        response = lake.http.post(f"/prometheus/api/v1/{path}", data=form, headers=lake.headers(lake.a, "reader"))
    except httpx.TimeoutException:
        return [Fault(query.place, "no answer: it hangs", form["query"])]
    except httpx.HTTPError as error:
        return [Fault(query.place, f"the connection broke: {error!r}", form["query"])]
    return lake.judge(query.place, f"{form} {path}", query.expect, response)
