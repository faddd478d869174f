"""Grafana's Prometheus data source, as a client of ours."""

from __future__ import annotations

from typing import Any

import httpx


class Grafana:
    """The calls that Grafana's Prometheus data source makes, with its parameters: POST with a form for queries and
    lists, GET where the API has no POST, the key as a header or as the password of basic authentication."""

    def __init__(self, root: str, key: str = "secret") -> None:
        self._http = httpx.Client(
            base_url=root,
            timeout=60,
            headers={"user-agent": "Grafana/12.1.0", "accept-encoding": "gzip", "authorization": f"Bearer {key}"},
        )

    def resource(self, method: str, path: str, given: dict[str, Any]) -> Any:
        """Its backend passes calls of the editor on as they are."""
        form, parameters = (given, None) if method == "POST" else (None, given)
        response = self._http.request(method, path, headers={"x-datasource-uid": "lake"}, data=form, params=parameters)
        assert response.status_code == 200, response.text
        body = response.json()
        assert body["status"] == "success"
        return body["data"]

    def range(self, expr: str, start: int, end: int, step: float) -> Any:
        given = {"query": expr, "start": f"{start}", "end": f"{end}", "step": f"{step:g}"}
        return self.resource("POST", "/api/v1/query_range", given)

    def instant(self, expr: str, at: float) -> Any:
        return self.resource("POST", "/api/v1/query", {"query": expr, "time": f"{at:.3f}"})
