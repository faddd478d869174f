"""Each provider's notifications name objects as they are called, each once; what is none says where."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakerunner.model.errors import UserError
from lakerunner.model.notification import PROVIDERS, CreatedObject, created_objects, parse_json, validation_code
from suites.notifications import azure_event, event_bridge, gcp_event, s3_event, sns

ODD = "otel-raw/acme/edge/a b+c%2F/ü€😀&=?#.binpb"
KEYS = st.text(st.characters(exclude_categories=["Cs"]), min_size=1)


def test_what_each_provider_writes_for_an_odd_key() -> None:
    expected = [CreatedObject("lake", ODD)]
    assert created_objects("s3", s3_event(ODD)) == expected
    assert created_objects("s3", s3_event(ODD, slash="")) == expected
    assert created_objects("s3", s3_event(ODD, name="s3:ObjectCreated:CompleteMultipartUpload")) == expected
    assert created_objects("s3", sns(s3_event(ODD))) == expected
    assert created_objects("s3", event_bridge(ODD)) == expected
    assert created_objects("gcp", gcp_event(ODD)) == expected
    assert created_objects("azure", azure_event(ODD)) == expected
    assert created_objects("azure", [azure_event(ODD)]) == expected


@given(KEYS)
def test_any_key_comes_out_as_it_is(key: str) -> None:
    for event in (s3_event(key), s3_event(key, slash=""), sns(s3_event(key)), event_bridge(key)):
        assert created_objects("s3", event) == [CreatedObject("lake", key)]
    assert created_objects("gcp", gcp_event(key)) == [CreatedObject("lake", key)]
    assert created_objects("azure", azure_event(key)) == [CreatedObject("lake", key)]


def test_minio_says_the_same_and_more() -> None:
    minio = s3_event("otel-raw/a/b/c") | {"EventName": "s3:ObjectCreated:Put", "Key": "lake/otel-raw/a/b/c"}
    assert created_objects("s3", minio) == [CreatedObject("lake", "otel-raw/a/b/c")]


def test_ten_namings_are_one_object_in_the_order_of_the_first() -> None:
    event = s3_event(*["b", "a", "b", "c", "a"] * 2)
    assert [one.key for one in created_objects("s3", event)] == ["b", "a", "c"]
    assert created_objects("azure", [azure_event("x")] * 10) == [CreatedObject("lake", "x")]


def test_deletions_tests_and_other_events_name_nothing() -> None:
    assert created_objects("s3", s3_event("x", name="ObjectRemoved:Delete")) == []
    assert created_objects("s3", {"Service": "Amazon S3", "Event": "s3:TestEvent", "Bucket": "lake"}) == []
    assert created_objects("s3", sns({"Service": "Amazon S3", "Event": "s3:TestEvent", "Bucket": "lake"})) == []
    assert created_objects("s3", event_bridge("x", kind="Object Deleted")) == []
    assert created_objects("gcp", gcp_event("x", kind="OBJECT_DELETE")) == []
    assert created_objects("azure", azure_event("x", kind="Microsoft.Storage.BlobDeleted")) == []
    assert created_objects("azure", []) == []


def test_gcp_with_attributes_alone_and_with_data_alone() -> None:
    event = gcp_event("a b")
    without_data = copy.deepcopy(event)
    del without_data["message"]["data"]
    assert created_objects("gcp", without_data) == [CreatedObject("lake", "a b")]
    del event["message"]["attributes"]["objectId"]
    assert created_objects("gcp", event) == [CreatedObject("lake", "a b")]


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"subject": None}, CreatedObject("lake", "a b")),
        ({"data": {}}, CreatedObject("lake", "a b")),
        ({"data": {"url": "http://127.0.0.1:10000/devstoreaccount1/lake/a%20b"}}, CreatedObject("lake", "a b")),
        ({"data": {"url": "https://account.dfs.core.windows.net/lake/a%20b"}}, CreatedObject("lake", "a b")),
        ({"data": {"url": "https://h/lake/lake/x"}}, CreatedObject("lake", "lake/x")),
    ],
)
def test_azure_by_url_or_by_subject(change: dict[str, Any], expected: CreatedObject) -> None:
    assert created_objects("azure", azure_event("a b") | change) == [expected]


def test_azure_as_a_cloud_event() -> None:
    event = azure_event("a b")
    cloud = {"specversion": "1.0", "type": event["eventType"], "subject": event["subject"], "data": event["data"]}
    assert created_objects("azure", cloud) == [CreatedObject("lake", "a b")]


def test_event_grid_asks_for_its_code_back() -> None:
    ask = {"eventType": "Microsoft.EventGrid.SubscriptionValidationEvent", "data": {"validationCode": "512d"}}
    assert validation_code([ask]) == "512d"
    assert validation_code(ask) == "512d"
    assert validation_code([azure_event("x")]) is None
    assert created_objects("azure", [ask]) == []
    for broken in ({}, None, {"validationCode": 1}):
        with pytest.raises(UserError, match="validationCode"):
            validation_code([ask | {"data": broken}])


@pytest.mark.parametrize(
    ("provider", "event", "message"),
    [
        ("s3", {}, 'S3 event has no list "Records"'),
        ("s3", [], "an S3 event is not a JSON object"),
        ("s3", {"Records": [{}]}, r"Records\[0\] has no s3.bucket.name or s3.object.key"),
        ("s3", {"Records": ["x"]}, r"Records\[0\] has no"),
        ("s3", {"Records": [*s3_event("x")["Records"], {"s3": {}}]}, r"Records\[1\] has no"),
        ("s3", {"Records": [{"s3": {"bucket": {"name": "b"}, "object": {"key": "%ff"}}}]}, r"Records\[0\].* not UTF-8"),
        ("s3", {"Records": [{"s3": {"bucket": {"name": "b"}, "object": {"key": 7}}}]}, r"Records\[0\] has no"),
        ("s3", {"TopicArn": "t", "Type": "SubscriptionConfirmation", "Message": "m"}, "SubscriptionConfirmation"),
        ("s3", {"TopicArn": "t", "Type": "Notification", "Message": "m"}, "not JSON"),
        ("s3", {"detail-type": "Object Created"}, "EventBridge event has no"),
        ("gcp", {}, "member message is not"),
        ("gcp", {"message": {}}, "attribute eventType"),
        ("gcp", {"message": {"attributes": {"eventType": "OBJECT_FINALIZE"}}}, "bucketId and objectId"),
        ("gcp", {"message": {"attributes": {"eventType": "OBJECT_FINALIZE"}, "data": "*"}}, "not base64"),
        ("azure", {}, "event 0 has no eventType"),
        ("azure", [azure_event("x"), 7], "event 1 is not a JSON object"),
        ("azure", [azure_event("x") | {"subject": "", "data": {}}], "event 0 has no valid data.url or subject"),
        ("azure", [azure_event("x") | {"data": {"url": "https://h/other/x"}}], "event 0 has no"),
    ],
)
def test_what_is_wrong_is_named(provider: str, event: object, message: str) -> None:
    with pytest.raises(UserError, match=message):
        created_objects(provider, event)


_S3_WORDS = ["Records", "s3", "bucket", "name", "object", "key", "TopicArn", "Type", "Message", "Notification"]
_BRIDGE_WORDS = ["detail", "detail-type", "Object Created"]
_GCP_WORDS = ["message", "attributes", "eventType", "objectId", "bucketId", "OBJECT_FINALIZE"]
_AZURE_WORDS = ["data", "url", "subject", "Microsoft.Storage.BlobCreated"]
WORDS = st.sampled_from([*_S3_WORDS, *_BRIDGE_WORDS, *_GCP_WORDS, *_AZURE_WORDS])
ANY_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text() | WORDS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(WORDS, inner, max_size=5),
    max_leaves=20,
)


@given(st.sampled_from(sorted(PROVIDERS)), ANY_JSON)
def test_whatever_comes_names_objects_or_is_refused(provider: str, event: object) -> None:
    try:
        found = created_objects(provider, event)
        validation_code(event)
    except UserError:
        return
    assert all(one.bucket and one.key for one in found)


def test_text_that_is_not_json_is_refused() -> None:
    for text in ("", "{", b"\xff", '"\\ud800"', "[" * 100_000):
        with pytest.raises(UserError, match="not JSON"):
            parse_json(text)
