"""Addresses, and what they open. No request leaves the machine: the clouds are a closed loopback port."""

from __future__ import annotations

import json
import pickle
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lakerunner.model.errors import Unavailable, UserError
from lakerunner.objects.open import StoreAddress, open_store, shared_store, with_variables
from lakerunner.objects.store import is_key

SECRET = "a-very-secret-value"
GOOGLE_ACCOUNT = {"private_key": "", "private_key_id": "", "client_email": "", "disable_oauth": True}


@pytest.fixture
def closed_port() -> Iterator[int]:
    """Ours as long as the test runs, so that nobody else comes to listen there."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        yield int(taken.getsockname()[1])


def cloud(scheme: str, port: int, retries: int = 2) -> StoreAddress:
    endpoint = f"http://127.0.0.1:{port}"
    options = {
        "s3": {"endpoint": endpoint, "access_key_id": "key", "secret_access_key": SECRET},
        "gs": {"service_account_key": json.dumps({**GOOGLE_ACCOUNT, "gcs_base_url": endpoint})},
        "az": {"endpoint": endpoint, "account_name": "account", "sas_key": f"sv=1&sig={SECRET}"},
    }[scheme]
    return StoreAddress(f"{scheme}://lake/pre/fix", (*options.items(), ("allow_http", "true")), retries, 5.0)


@pytest.mark.parametrize("url", ["ftp://host/dir", "s3:/bucket", "/var/lib/lake", "", "s4://bucket", "file"])
def test_an_unknown_url_is_refused_with_the_known_ones(url: str) -> None:
    with pytest.raises(UserError, match="one of file://, memory://, s3://, gs://, az://") as raised:
        open_store(StoreAddress(url))
    assert repr(url) in str(raised.value)


def test_a_local_store_is_created_where_its_url_says(tmp_path: Path) -> None:
    directory = tmp_path / "new" / "a b%20c#?é"
    store = open_store(StoreAddress(directory.as_uri()))
    store.put("x", b"1")
    assert (directory / "x").read_bytes() == b"1"
    assert store.bucket == "local"


def test_a_local_store_that_cannot_be_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(UserError, match=r"cannot create store .*: File exists"):
        open_store(StoreAddress((tmp_path / "file").as_uri()))
    with pytest.raises(UserError, match="write file:///path"):
        open_store(StoreAddress("file://relative/path"))


def test_a_memory_store_is_shared_by_its_name() -> None:
    open_store(StoreAddress("memory://shared")).put("a", b"text")
    assert open_store(StoreAddress("memory://shared", retries=1)).get("a", max_bytes=4) == b"text"
    assert list(open_store(StoreAddress("memory://other")).list("")) == []
    assert open_store(StoreAddress("memory://shared")).bucket == "shared"
    assert open_store(StoreAddress("memory://")).bucket == "memory"


@pytest.mark.parametrize("url", ["memory://x", "file:///nowhere"])
def test_options_are_refused_where_there_are_none(url: str) -> None:
    with pytest.raises(UserError, match="takes no options, but region is set"):
        open_store(StoreAddress(url, (("region", SECRET),)))


@pytest.mark.parametrize(
    ("url", "option", "message"),
    [
        ("s3://lake", "endpont", "'endpont' is not valid"),
        ("s3://lake", "timeout", "failed to parse its value as Duration"),
        ("s3://lake", "allow_http", "failed to parse its value as boolean"),
        ("s3://lake", "root_certificate", "No certificates found"),
        ("s3://", "region", "Unable to recognise URL"),
        ("gs://lake", "service_account_key", "Unable to decode service account"),
        ("az://lake", "access_key", "Account must be specified"),
    ],
)
def test_wrong_options_are_named_and_their_values_are_not(url: str, option: str, message: str) -> None:
    with pytest.raises(UserError, match=message) as raised:
        open_store(StoreAddress(url, ((option, SECRET),)))
    assert SECRET not in str(raised.value)
    assert raised.value.__cause__ is None


def test_an_address_travels_and_keeps_its_secrets() -> None:
    address = StoreAddress("s3://lake", (("secret_access_key", SECRET),), retries=3)
    assert pickle.loads(pickle.dumps(address)) == address
    assert repr(address) == "StoreAddress(url='s3://lake', retries=3, retry_seconds=30.0)"
    assert SECRET not in str(address)


@pytest.mark.parametrize(("retries", "seconds"), [(-1, 30.0), (8, 0.0)])
def test_an_address_wants_bounds(retries: int, seconds: float) -> None:
    with pytest.raises(UserError, match="retries >= 0 and retry_seconds > 0"):
        StoreAddress("memory://x", retries=retries, retry_seconds=seconds)


def test_a_process_has_one_client_of_an_address() -> None:
    address = StoreAddress("s3://lake", (("region", "eu-north-1"),))
    assert shared_store(address) is shared_store(StoreAddress("s3://lake", (("region", "eu-north-1"),)))
    assert shared_store(address) is not shared_store(StoreAddress("s3://other"))


@pytest.mark.parametrize("scheme", ["s3", "gs", "az"])
def test_a_cloud_that_is_away_is_unavailable_within_bounds(scheme: str, closed_port: int) -> None:
    store = open_store(cloud(scheme, closed_port))
    assert store.bucket == "lake"
    calls = (
        lambda: store.put("a", b"x"),
        lambda: store.put("a", b"x", if_absent=True),
        lambda: store.get("a", max_bytes=1),
        lambda: store.get_range("a", 0, 1),
        lambda: store.head("a"),
        lambda: list(store.list("")),
        lambda: store.delete(["a"]),
    )
    for call in calls:
        began = time.monotonic()
        with pytest.raises(Unavailable, match="the object store cannot ") as raised:
            call()
        assert raised.value.detail.startswith(f"{scheme}://lake: ")
        assert str(closed_port) not in str(raised.value)
        assert time.monotonic() - began < 30
        assert SECRET not in str(raised.value)


@settings(deadline=None)
@given(st.text(max_size=40))
def test_whatever_is_a_key_can_be_stored(key: str) -> None:
    """The rule of keys is no wider than what obstore takes."""
    if is_key(key):
        store = open_store(StoreAddress("memory://keys"))
        store.put(key, b"x")
        assert [meta.key for meta in store.list("")] == [key]
        store.delete([key])


def test_an_address_takes_the_vendors_variables_along() -> None:
    """For Spark's tasks, whose environment has none of them."""
    aws = {"AWS_ACCESS_KEY_ID": "key", "AWS_SECRET_ACCESS_KEY": SECRET, "AWS_ROLE_ARN": "role", "AWS_REGION": "far"}
    others = {"AWS_PROFILE": "unknown to obstore", "DATABASE_URL": SECRET, "AZURE_STORAGE_ACCOUNT_NAME": "another"}
    named = {name.lower(): value for name, value in aws.items()}
    assert dict(with_variables(StoreAddress("s3://lake"), aws | others).options) == named
    own = (("access_key_id", "mine"), ("secret_access_key", "mine"), ("allow_http", "true"))
    both = with_variables(StoreAddress("s3://lake", own), aws | others)
    assert both.options == (*own, ("aws_region", "far"), ("aws_role_arn", "role"))
    assert SECRET not in repr(both)
    azure = with_variables(StoreAddress("az://lake"), others)
    assert azure.options == (("azure_storage_account_name", "another"),)
    for url in ("file:///lake", "memory://lake", "ftp://lake"):
        assert with_variables(StoreAddress(url), aws | others) == StoreAddress(url)


def test_a_store_opens_by_variables_that_its_address_took_along(closed_port: int) -> None:
    endpoint = f"http://127.0.0.1:{closed_port}"
    variables = {"AWS_ENDPOINT_URL": endpoint, "AWS_ACCESS_KEY_ID": "key", "AWS_SECRET_ACCESS_KEY": SECRET}
    bare = StoreAddress("s3://lake", (("allow_http", "true"),), 0, 5.0)
    with pytest.raises(Unavailable, match="cannot read 'x'"):
        open_store(with_variables(bare, variables)).get("x", max_bytes=1)
