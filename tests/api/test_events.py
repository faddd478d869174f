"""S3 events point at raw objects: decoded, each once, of our bucket only."""

from __future__ import annotations

import pytest

from lakerunner.api.events import keys_of
from lakerunner.model.errors import UserError


def event(*keys: str, bucket: str = "lake", name: str = "ObjectCreated:Put") -> dict:
    return {
        "Records": [
            {"eventName": name, "s3": {"bucket": {"name": bucket}, "object": {"key": key, "size": 1}}} for key in keys
        ]
    }


def test_keys_are_decoded_and_each_stands_once() -> None:
    raw = event("otel-raw/acme/edge/a+b%2Fc.binpb", "otel-raw%2Facme%2Fedge%2Flogs.binpb") | {}
    raw["Records"] += raw["Records"]
    assert keys_of(raw, "lake") == ["otel-raw/acme/edge/a b/c.binpb", "otel-raw/acme/edge/logs.binpb"]


def test_keys_are_taken_below_the_prefix_of_the_store() -> None:
    found = event("lake/one/otel-raw/acme/edge/x.binpb", "otel-raw/acme/edge/y.binpb")
    assert keys_of(found, "lake", "lake/one/") == ["otel-raw/acme/edge/x.binpb"]


def test_our_own_segments_strays_and_deletions_are_ignored() -> None:
    assert keys_of(event("db/acme/edge/x.parquet", "elsewhere/x"), "lake") == []
    assert keys_of(event("otel-raw/acme/edge/x.binpb", name="s3:ObjectRemoved:Delete"), "lake") == []
    assert keys_of({"Event": "s3:TestEvent"}, "lake") == []


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ({}, 'an S3 event has a list "Records"'),
        ({"Records": [{}]}, r"Records\[0\] lacks s3.bucket.name or s3.object.key"),
        ({"Records": ["x"]}, r"Records\[0\] lacks"),
        (
            event("otel-raw/a/b/c", bucket="other"),
            r"Records\[0\] is of bucket 'other'; this lake reads 'lake'",
        ),
    ],
)
def test_what_is_wrong_is_named(body: dict, message: str) -> None:
    with pytest.raises(UserError, match=message):
        keys_of(body, "lake")
