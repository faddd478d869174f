"""Organizations and keys by command line, and what a key opens, on a lake that is running."""

from __future__ import annotations

import re
from pathlib import Path

import httpx
import pytest

from servers.lake import Lake, lake, query_api, wait_until
from servers.postgres import fresh_database
from suites.requests import drop, ended, request_of

pytestmark = pytest.mark.heavy
KEY_SECONDS = {"LAKERUNNER_KEY_CACHE_SECONDS": "0.2"}


def test_an_organization_its_key_and_nobody_elses_data(tmp_path: Path) -> None:
    with lake(tmp_path / "home", KEY_SECONDS) as running:
        drop(running, "edge", "logs.binpb", request_of("of acme"), organization="acme")
        drop(running, "edge", "logs.binpb", request_of("of default"))
        ended(running, "edge", 2)
        assert running.sql("select message from logs") == [{"message": "of default"}]
        made = running.command("orgs", "create", "acme")
        assert made.returncode == 0, made.stderr
        assert "acme" in running.command("orgs", "list").stdout
        assert running.command("objects", "--retry").stdout == "queued again: 1 object\n"
        key = running.command("keys", "create", "grafana", "--org", "acme").stdout.strip()
        assert key.startswith("lrk_")
        bearer = {"authorization": f"Bearer {key}"}
        wait_until(
            lambda: bool(running.sql("select 1 as one from logs", headers=bearer)),
            "the retried object",
            120,
            running.process.text,
        )
        assert running.sql("select message from logs", headers=bearer) == [{"message": "of acme"}]
        assert running.sql("select message from logs") == [{"message": "of default"}]
        refuse_what_is_not_acmes(running, bearer)
        assert key not in running.process.text()
        assert running.command("keys", "revoke", "grafana", "--org", "acme").returncode == 0
        becomes(running, bearer, 401)
        wrong = running.command("keys", "create", "x", "--org", "nobody")
        assert wrong.returncode == 1
        assert "organization 'nobody' not found; known organizations:" in wrong.stderr


def refuse_what_is_not_acmes(running: Lake, bearer: dict[str, str]) -> None:
    objects = httpx.get(f"{running.url}/api/v1/objects", headers=bearer, timeout=60).json()
    assert [entry["key"] for entry in objects["objects"]] == ["otel-raw/acme/edge/logs.binpb"]
    query = "select message from logs where organization_id = '12340000-0000-4000-8000-000000000000'"
    assert running.post_sql(query, bearer).status_code == 403


def test_roles_rotation_and_limits_by_command_line(tmp_path: Path, embedded_postgres_url: str) -> None:
    index = {"DATABASE_URL": fresh_database(embedded_postgres_url)}
    with query_api(tmp_path / "home", KEY_SECONDS | index) as running:
        reader = running.command("keys", "create", "grafana", "--role", "read").stdout.strip()
        writer = running.command("keys", "create", "collector", "--role", "write").stdout.strip()
        assert status(running, bearer_of(reader)) == 200
        assert status(running, bearer_of(writer)) == 403
        denied = running.command("sql", "select 1 as one from logs", "--key", writer)
        assert denied.returncode == 1
        assert "this needs role read, key collector has write" in denied.stderr
        rotate(running, reader)
        limit(running)
        logged = running.process.text()
        assert not any(secret in logged for secret in (reader, writer))


def rotate(running: Lake, first: str) -> None:
    second = running.command("keys", "rotate", "grafana", "--grace", "1h").stdout.strip()
    assert second.startswith("lrk_")
    assert second != first
    assert [status(running, bearer_of(secret)) for secret in (first, second)] == [200, 200]
    grafana, collector = running.command("keys", "list").stdout.splitlines()
    when = r"\d{4}-\d\d-\d\d \d\d:\d\d"
    assert re.fullmatch(f"grafana  read  made {when}  rotated {when}  old secret works until {when}", grafana)
    assert re.fullmatch(f"collector  write  made {when}", collector)
    third = running.command("keys", "rotate", "grafana", "--grace", "0s").stdout.strip()
    becomes(running, bearer_of(second), 401)
    becomes(running, bearer_of(first), 401)
    assert status(running, bearer_of(third)) == 200
    running.command("keys", "revoke", "grafana")
    becomes(running, bearer_of(third), 401)
    assert re.fullmatch(
        f"grafana  read  made {when}  rotated {when}  revoked {when}",
        running.command("keys", "list").stdout.splitlines()[0],
    )
    wrong = running.command("keys", "rotate", "grafana")
    assert (wrong.returncode, wrong.stdout) == (1, "")
    assert "cannot rotate key 'grafana'" in wrong.stderr


def limit(running: Lake) -> None:
    said = running.command("orgs", "limit", "default", "--queries-per-second", "0.001").stdout
    assert said == "queries per second: 0.001; at the same time: as org_concurrent_queries says\n"
    becomes(running, {}, 429)
    refused = running.command("sql", "select 1 as one from logs")
    assert "your organization may send 0.001 queries per second" in refused.stderr
    said = running.command("orgs", "limit", "default", "--queries-per-second", "0", "--concurrent", "2").stdout
    assert said == "queries per second: as org_queries_per_second says; at the same time: 2\n"
    becomes(running, {}, 200)


def bearer_of(secret: str) -> dict[str, str]:
    return {"authorization": f"Bearer {secret}"}


def status(running: Lake, headers: dict[str, str]) -> int:
    return running.post_sql("select 1 as one from logs", headers).status_code


def becomes(running: Lake, headers: dict[str, str], wanted: int) -> None:
    wait_until(lambda: status(running, headers) == wanted, f"status {wanted}", 60, running.process.text)
