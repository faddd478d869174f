"""Where workers are: a list, the addresses of a name, the ready endpoints of a Kubernetes service."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from lakerunner.api.app import build_app
from lakerunner.api.server import HttpServer, bind
from lakerunner.api.workers.addresses import Addresses, Cluster, Lookup, k8s_lookup, lookups, urls_of
from lakerunner.model.errors import Unavailable, UserError, full_message

PATH = "/apis/discovery.k8s.io/v1/namespaces/{namespace}/endpointslices"


def test_a_list_is_taken_as_it_is() -> None:
    given = Addresses(lookups(" http://b:2/, http://a:1 ,https://c,http://a:1"))
    assert given.here() == ["http://a:1", "http://b:2", "https://c"]


@pytest.mark.parametrize(
    ("setting", "said"),
    [
        ("http://a:1,ftp://b", r"'ftp://b' is not valid: write one of http://..., https://..., dns://..., k8s://..."),
        ("a:7080", "'a:7080' is not valid"),
        ("dns://workers", "'dns://workers' is not valid: write dns://name:port"),
        ("dns://:70", "write dns://name:port"),
        ("dns://a:70000", "write dns://name:port"),
        ("k8s://workers:7080", "write k8s://namespace/service:port"),
        ("k8s://a/b/c:7080", "write k8s://namespace/service:port"),
        ("k8s://a/b&limit=1:7080", "write k8s://namespace/service:port"),
    ],
)
def test_what_cannot_be_read_is_refused(setting: str, said: str) -> None:
    with pytest.raises(UserError, match="setting workers: .*" + said.replace(".", r"\.")):
        lookups(setting)


def test_a_name_is_resolved() -> None:
    assert Addresses(lookups("dns://localhost:7080")).here() in (["http://127.0.0.1:7080"], ["http://[::1]:7080"])
    assert Addresses(lookups("dns://127.0.0.1:7080")).here() == ["http://127.0.0.1:7080"]


def test_a_name_without_address_is_unavailable() -> None:
    with pytest.raises(Unavailable, match="cannot look up query workers") as refused:
        Addresses(lookups("dns://no-such-host.invalid:7080")).here()
    assert "no-such-host" not in str(refused.value)
    assert "name no-such-host.invalid has no address" in refused.value.detail


def test_a_worker_with_two_families_is_known_once() -> None:
    assert urls_of(["10.0.0.2", "::2", "10.0.0.1", "10.0.0.1"], 70) == ["http://10.0.0.1:70", "http://10.0.0.2:70"]
    assert urls_of(["fe80::1%eth0", "::2"], 70) == ["http://[::2]:70", "http://[fe80::1]:70"]
    assert urls_of([], 70) == []


class Changing:
    """A lookup that gives these in turn; an error is raised."""

    def __init__(self, *answers: Sequence[str] | Exception) -> None:
        self.answers = list(answers)
        self.calls = 0

    def __call__(self) -> Sequence[str]:
        answer = self.answers[min(self.calls, len(self.answers) - 1)]
        self.calls += 1
        if isinstance(answer, Exception):
            raise answer
        return answer


def until(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.005)


def test_an_answer_is_looked_up_again_when_it_is_old_and_not_before() -> None:
    now = [0.0]
    lookup = Changing(["http://a"], ["http://b"])
    known = Addresses([lookup], lambda: now[0])
    assert known.here() == ["http://a"]
    now[0] = 4.9
    assert known.here() == ["http://a"]
    assert lookup.calls == 1
    now[0] = 5.0
    assert known.here() == ["http://a"]  # at once: the new one is on its way
    until(lambda: known.here() == ["http://b"])
    assert lookup.calls == 2


def test_while_a_lookup_fails_the_last_answer_stays() -> None:
    now = [0.0]
    lookup = Changing(["http://a"], Unavailable("no DNS"), Unavailable("no DNS"), ["http://b"])
    known = Addresses([lookup], lambda: now[0])
    given: list[str] = []

    def later() -> bool:
        now[0] += 6
        (url,) = known.here()
        given.append(url)
        return url != "http://a"

    until(later)
    assert (set(given[:-1]), given[-1]) == ({"http://a"}, "http://b")
    assert lookup.calls >= 4


def test_a_first_lookup_that_fails_is_said_and_tried_again() -> None:
    known = Addresses([Changing(Unavailable("no DNS"), ["http://a"])])
    with pytest.raises(Unavailable, match="no DNS"):
        known.here()
    assert known.here() == ["http://a"]


class ApiServer:
    """Lists endpoint slices as the Kubernetes API documents them."""

    def __init__(self, account: Path) -> None:
        self.account = account
        self.asked: list[tuple[str, str, str]] = []
        self.pieces: list[dict[str, Any]] = []
        self.status = 200
        self.server = HttpServer(build_app([Route(PATH, self.list)]), bind("127.0.0.1", 0), print)

    def list(self, request: Request) -> Response:
        query = request.query_params.get("labelSelector", "")
        self.asked.append((request.url.path, query, request.headers.get("authorization", "")))
        body = {"kind": "EndpointSliceList", "apiVersion": "discovery.k8s.io/v1", "items": self.pieces}
        return JSONResponse(body if self.status == 200 else {"kind": "Status", "code": self.status}, self.status)

    def lookup(self) -> Lookup:
        return k8s_lookup("k8s://lake/query-worker:7080", Cluster(self.server.url, self.account))


@pytest.fixture
def kubernetes(tmp_path: Path) -> Iterator[ApiServer]:
    (tmp_path / "token").write_text("of-the-pod\n")
    api = ApiServer(tmp_path)
    api.server.start()
    yield api
    api.server.stop()


def piece(kind: str, *endpoints: tuple[str, dict[str, bool] | None]) -> dict[str, Any]:
    listed = [{"addresses": [address], **({"conditions": c} if c is not None else {})} for address, c in endpoints]
    ports = [{"name": "http", "port": 7080, "protocol": "TCP"}]
    return {"metadata": {"name": "query-worker-x"}, "addressType": kind, "endpoints": listed, "ports": ports}


def test_ready_endpoints_of_all_slices_are_the_workers(kubernetes: ApiServer) -> None:
    kubernetes.pieces = [
        piece("IPv4", ("10.1.0.3", {"ready": True, "serving": True}), ("10.1.0.4", {"ready": False})),
        piece("IPv4", ("10.1.0.1", None), ("10.1.0.2", {})),
        piece("IPv6", ("fd00::3", {"ready": True})),
        {"metadata": {}, "addressType": "IPv4", "endpoints": None},
    ]
    assert kubernetes.lookup()() == ["http://10.1.0.1:7080", "http://10.1.0.2:7080", "http://10.1.0.3:7080"]
    assert kubernetes.asked == [
        (
            "/apis/discovery.k8s.io/v1/namespaces/lake/endpointslices",
            "kubernetes.io/service-name=query-worker",
            "Bearer of-the-pod",
        )
    ]


def test_the_token_is_read_each_time_and_none_ready_is_an_answer(kubernetes: ApiServer) -> None:
    look = kubernetes.lookup()
    assert look() == []
    (kubernetes.account / "token").write_text("new")
    look()
    assert [authorization for _, _, authorization in kubernetes.asked] == ["Bearer of-the-pod", "Bearer new"]


def test_what_the_api_refuses_is_unavailable_and_shows_no_token(kubernetes: ApiServer) -> None:
    kubernetes.status = 403
    with pytest.raises(Unavailable, match="cannot look up query workers") as said:
        kubernetes.lookup()()
    assert "cannot list the endpoints of k8s://lake/query-worker:7080: the API server returned 403" in said.value.detail
    assert "may list" in said.value.detail
    assert "of-the-pod" not in full_message(said.value)


def test_outside_a_cluster_it_says_so(tmp_path: Path) -> None:
    with pytest.raises(Unavailable) as refused:
        k8s_lookup("k8s://lake/query-worker:7080", Cluster("http://127.0.0.1:9", tmp_path))()
    assert "No such file" in refused.value.detail
