"""Notifications of object stores about new objects. Comes in: their parsed JSON. Goes out: what was created.

    s3      S3 and MinIO records, also inside an SNS message or an EventBridge event; S3's test event names nothing
    gcp     a Pub/Sub message of Cloud Storage, as pushed or pulled
    azure   Event Grid's events of Blob Storage, in its own schema and as CloudEvents, one or a list

What always holds: a key comes out as the object's name, decoded where the provider encodes it; an object named
several times comes out once, in the order of first naming; deletions and other events name nothing. Anything else is a
UserError that names the place.
"""

from __future__ import annotations

import base64
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote, unquote_plus, urlsplit

import orjson

from lakerunner.model.errors import UserError

_AZURE_VALIDATION = "Microsoft.EventGrid.SubscriptionValidationEvent"
_AZURE_CREATED = "Microsoft.Storage.BlobCreated"


@dataclass(frozen=True)
class CreatedObject:
    """An object that a notification names, by bucket (on Azure: container) and key."""

    bucket: str
    key: str

    def __post_init__(self) -> None:
        if not isinstance(self.bucket, str) or not isinstance(self.key, str) or not self.bucket or not self.key:
            raise TypeError("bucket and key must be non-empty strings")


def created_objects(provider: str, event: object) -> list[CreatedObject]:
    """Return what a notification of this provider (one of PROVIDERS) names as created, each object once."""
    return list(dict.fromkeys(PROVIDERS[provider](event)))


def validation_code(event: object) -> str | None:
    """Return the code that Event Grid must get back before it sends events to a webhook; None if this is not its
    question."""
    for one in event if isinstance(event, list) else [event]:
        if isinstance(one, dict) and one.get("eventType") == _AZURE_VALIDATION:
            code = one.get("data", {}).get("validationCode") if isinstance(one.get("data"), dict) else None
            if not isinstance(code, str):
                raise UserError("a subscription validation event needs data.validationCode")
            return code
    return None


def parse_json(text: str | bytes) -> Any:
    """Parse JSON; raise a UserError that says what is wrong."""
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError as error:
        raise UserError(f"not JSON: {error}") from None


def _s3(event: object) -> list[CreatedObject]:
    event = _object(event, "an S3 event")
    if "TopicArn" in event and "Message" in event:
        if event.get("Type") != "Notification" or not isinstance(event["Message"], str):
            raise UserError(
                f"SNS message of type {event.get('Type')!r} contains no object: confirm subscriptions in SNS"
            )
        event = _object(parse_json(event["Message"]), "the Message of an SNS notification")
    if event.get("Event") == "s3:TestEvent":
        return []
    if "detail-type" in event:
        return _event_bridge(event)
    records = event.get("Records")
    if not isinstance(records, list):
        raise UserError('S3 event has no list "Records"')
    made = [_s3_record(number, record) for number, record in enumerate(records)]
    return [one for one in made if one]


def _s3_record(number: int, record: Any) -> CreatedObject | None:
    try:
        named = CreatedObject(
            record["s3"]["bucket"]["name"], unquote_plus(record["s3"]["object"]["key"], errors="strict")
        )
        return named if "ObjectCreated" in record.get("eventName", "ObjectCreated") else None
    except (KeyError, TypeError, AttributeError):
        raise UserError(f"Records[{number}] has no s3.bucket.name or s3.object.key") from None
    except UnicodeDecodeError:
        raise UserError(f"Records[{number}]: key is not UTF-8") from None


def _event_bridge(event: dict[str, Any]) -> list[CreatedObject]:
    """Read an EventBridge event, whose keys are not encoded."""
    if event["detail-type"] != "Object Created":
        return []
    try:
        return [CreatedObject(event["detail"]["bucket"]["name"], event["detail"]["object"]["key"])]
    except (KeyError, TypeError):
        raise UserError("EventBridge event has no detail.bucket.name or detail.object.key") from None


def _gcp(event: object) -> list[CreatedObject]:
    """Read a Pub/Sub message. Its attributes hold keys as they are; its data, unless the bucket's notifications leave
    it out, says the same."""
    message = _object(_object(event, "a Pub/Sub message").get("message"), "its member message")
    attributes = message.get("attributes") or {}
    try:
        if "eventType" not in attributes:
            raise UserError("Cloud Storage notification has no attribute eventType")
        if attributes["eventType"] != "OBJECT_FINALIZE":
            return []
        if "objectId" in attributes:
            return [CreatedObject(attributes["bucketId"], attributes["objectId"])]
        described = parse_json(base64.b64decode(message["data"], validate=True))
        return [CreatedObject(described["bucket"], described["name"])]
    except ValueError:
        raise UserError("data of the message is not base64") from None
    except (KeyError, TypeError):
        raise UserError("Cloud Storage notification has no attributes bucketId and objectId") from None


def _azure(event: object) -> list[CreatedObject]:
    made = [_azure_event(number, one) for number, one in enumerate(event if isinstance(event, list) else [event])]
    return [one for one in made if one]


def _azure_event(number: int, event: object) -> CreatedObject | None:
    """Read one Event Grid event. Both the subject and the URL have the container and the name; the URL is preferred for
    the name, because its encoding is known."""
    event = _object(event, f"event {number}")
    kind = event.get("eventType", event.get("type"))
    if not isinstance(kind, str):
        raise UserError(f"event {number} has no eventType: it is not an Event Grid event")
    if kind != _AZURE_CREATED:
        return None
    data = event.get("data")
    url = data.get("url") if isinstance(data, dict) else None
    subject = event.get("subject")
    container, _, name = (subject if isinstance(subject, str) else "").partition("/containers/")[2].partition("/blobs/")
    try:
        if isinstance(url, str):
            path = urlsplit(url).path
            if not container:
                container = unquote(path[1:].partition("/")[0], errors="strict")
            name = unquote(path.partition(f"/{container}/")[2], errors="strict")
        return CreatedObject(container, name)
    except (TypeError, ValueError):
        raise UserError(f"event {number} has no valid data.url or subject") from None


def _object(value: object, what: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise UserError(f"{what} is not a JSON object")
    return value


PROVIDERS: dict[str, Callable[[object], list[CreatedObject]]] = {"s3": _s3, "gcp": _gcp, "azure": _azure}
