"""Requests of web pages, proxies and broken or hostile clients, each a file in tests/hostile/doors: what comes back
is what the file states, and the servers go on serving."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import pytest

from suites.open_api import OpenApi, open_api
from suites.raw_http import asked, read_script

REQUESTS = Path(__file__).resolve().parent.parent / "hostile" / "doors"


@pytest.fixture(scope="module")
def api(embedded_postgres_url: str, tmp_path_factory: pytest.TempPathFactory, warmed: None) -> Iterator[OpenApi]:
    """On loopback, without keys."""
    with open_api(embedded_postgres_url, tmp_path_factory.mktemp("hostile")) as opened:
        yield opened


@pytest.mark.parametrize("path", sorted(REQUESTS.glob("*.http")), ids=lambda path: path.stem)
def test_a_hostile_request_gets_the_answer_its_file_states(
    api: OpenApi, path: Path, record_property: Callable[[str, object], None]
) -> None:
    record_property("hostile requests", 1)
    servers = {"api": api.url, "otlp": api.otlp_url, "worker": api.worker_url}
    script = read_script(path, {"token": api.token})
    url = servers[script.facts.get("server", "api")]
    script = read_script(path, {"token": api.token, "port": str(urlsplit(url).port)})
    answer = asked(url, script.request)
    assert answer.status == int(script.facts["expect"]), answer.text
    assert script.facts.get("says", "") in answer.text
    assert httpx.get(f"{url}/openapi.json").status_code == 200
