"""Notifications as the providers write them, for objects that a test names."""

from __future__ import annotations

import base64
import json
from typing import Any
from urllib.parse import quote, quote_plus

Json = dict[str, Any]


def s3_event(*keys: str, bucket: str = "lake", name: str = "ObjectCreated:Put", slash: str = "/") -> Json:
    """`slash`: S3 leaves "/" as it is, some servers write %2F."""
    return {
        "Records": [
            {
                "eventVersion": "2.1",
                "eventSource": "aws:s3",
                "eventName": name,
                "s3": {
                    "bucket": {"name": bucket},
                    "object": {"key": quote_plus(key, safe=slash), "size": 1, "eTag": "e"},
                },
            }
            for key in keys
        ]
    }


def sns(event: Json) -> Json:
    return {"Type": "Notification", "TopicArn": "arn:aws:sns:us-east-1:1:raw", "Message": json.dumps(event)}


def event_bridge(key: str, bucket: str = "lake", kind: str = "Object Created") -> Json:
    return {
        "source": "aws.s3",
        "detail-type": kind,
        "detail": {"bucket": {"name": bucket}, "object": {"key": key, "size": 1, "etag": "e"}},
    }


def gcp_event(key: str, bucket: str = "lake", kind: str = "OBJECT_FINALIZE") -> Json:
    described = {"kind": "storage#object", "bucket": bucket, "name": key, "size": "1"}
    return {
        "message": {
            "attributes": {
                "eventType": kind,
                "bucketId": bucket,
                "objectId": key,
                "payloadFormat": "JSON_API_V1",
            },
            "data": base64.b64encode(json.dumps(described).encode()).decode(),
            "messageId": "1",
        },
        "subscription": "projects/p/subscriptions/s",
    }


def azure_event(key: str, container: str = "lake", kind: str = "Microsoft.Storage.BlobCreated") -> Json:
    return {
        "topic": "/subscriptions/x/resourceGroups/g/providers/Microsoft.Storage/storageAccounts/account",
        "subject": f"/blobServices/default/containers/{container}/blobs/{key}",
        "eventType": kind,
        "id": "1",
        "data": {
            "api": "PutBlob",
            "url": f"https://account.blob.core.windows.net/{container}/{quote(key)}",
            "contentLength": 1,
        },
        "dataVersion": "",
        "metadataVersion": "1",
    }
