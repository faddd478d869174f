"""Organizations and keys by command line, and what a key opens, on a lake that is running."""

from __future__ import annotations

from pathlib import Path

import httpx

from servers.lake import Lake, lake, wait_until
from suites.requests import drop, ended, request_of


def test_an_organization_its_key_and_nobody_elses_data(tmp_path: Path) -> None:
    with lake(tmp_path / "home") as running:
        drop(running, "edge", "logs.binpb", request_of("of acme"), organization="acme")
        drop(running, "edge", "logs.binpb", request_of("of default"))
        ended(running, "edge", 2)
        assert running.sql("select message from logs") == [{"message": "of default"}]
        made = running.command("orgs", "create", "acme")
        assert made.returncode == 0, made.stderr
        assert "acme" in running.command("orgs", "list").stdout
        assert running.command("objects", "--retry").stdout == "1 objects go again\n"
        key = running.command("keys", "create", "grafana", "--org", "acme").stdout.strip()
        assert key.startswith("lrk_")
        bearer = {"authorization": f"Bearer {key}"}
        wait_until(
            lambda: bool(running.sql("select 1 as one from logs", headers=bearer)),
            "the retried object",
            30,
            running.process.text,
        )
        assert running.sql("select message from logs", headers=bearer) == [{"message": "of acme"}]
        assert running.sql("select message from logs") == [{"message": "of default"}]
        refuse_what_is_not_acmes(running, bearer)
        assert key not in running.process.text()
        assert running.command("keys", "revoke", "grafana", "--org", "acme").returncode == 0
        assert running.post_sql("select 1 as one from logs", bearer).status_code == 401
        wrong = running.command("keys", "create", "x", "--org", "nobody")
        assert wrong.returncode == 1
        assert "there is no organization 'nobody': known are" in wrong.stderr


def refuse_what_is_not_acmes(running: Lake, bearer: dict[str, str]) -> None:
    objects = httpx.get(f"{running.url}/api/v1/objects", headers=bearer, timeout=10).json()
    assert [entry["key"] for entry in objects["objects"]] == ["otel-raw/acme/edge/logs.binpb"]
    query = "select message from logs where organization_id = '12340000-0000-4000-8000-000000000000'"
    assert running.post_sql(query, bearer).status_code == 403
