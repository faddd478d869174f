"""Send hostile PromQL as A and judge the answers."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import httpx

from hostile.inputs import PromqlQuery, filled
from hostile.two_tenants import Fault, TwoTenants, answer_text

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
    text = answer_text(response)
    found = [Fault(query.place, f"the answer holds {leak!r}", text) for leak in lake.leaks(f"{form} {path}", text)]
    if not any(_is_expected(expect, response.status_code) for expect in query.expect):
        what = f"expected {' or '.join(query.expect)}, got {response.status_code}"
        found.append(Fault(query.place, what, f"{text[:200]} <- {form['query']}"))
    return found


def _is_expected(expect: str, status: int) -> bool:
    """Prometheus answers 422 for what cannot be evaluated and 503 for a timeout."""
    match expect:
        case "any":
            return status < 500 or status == 503
        case "refused":
            return 400 <= status < 500
        case "rows":
            return status == 200
    return str(status) == expect
