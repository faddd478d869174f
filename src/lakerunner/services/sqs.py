"""Notifications from an SQS queue: S3's own, or through SNS or EventBridge.

Credentials and region come from `queue_options`, else from AWS's default chain (variables, profile, web identity,
container, instance). Only this module imports botocore, and only if a queue is named.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from lakerunner.model.errors import Unavailable, UserError
from lakerunner.model.notification import parse_json
from lakerunner.services.queue_door import Message

LONG_POLL_SECONDS = 20  # the maximum of SQS: an idle queue costs three requests a minute
_AT_ONCE = 10  # the most that SQS returns, or deletes, in one request
_HOST_REGION = re.compile(r"https?://(?:sqs\.([a-z0-9-]+)\.|([a-z0-9-]+)\.queue\.)amazonaws\.com")
OPTIONS = {
    "region": "region_name",
    "endpoint": "endpoint_url",
    "access_key_id": "aws_access_key_id",
    "secret_access_key": "aws_secret_access_key",
    "session_token": "aws_session_token",
}


class SqsQueue:
    provider = "s3"

    def __init__(self, url: str, options: Mapping[str, str]) -> None:
        from botocore.config import Config
        from botocore.exceptions import BotoCoreError, ClientError
        from botocore.session import get_session

        if not url.startswith(("https://", "http://")):
            raise UserError(
                f"setting sqs_queue_url {url!r} is not the URL of a queue: write https://sqs.REGION.amazonaws.com/..."
            )
        self.name = f"sqs {url.rpartition('/')[2]}"
        self._url = url
        self._failures = (BotoCoreError, ClientError)
        found = _HOST_REGION.match(url)
        region = (found[1] or found[2]) if found else None
        arguments = {"region_name": region} | {OPTIONS[name]: value for name, value in options.items()}
        config = Config(connect_timeout=5, read_timeout=LONG_POLL_SECONDS + 10, retries={"mode": "standard"})
        try:
            self._client = get_session().create_client("sqs", config=config, **arguments)
        except (BotoCoreError, ValueError) as error:
            raise UserError(f"cannot open {self.name}: {error}") from None

    def receive(self) -> list[Message]:
        answer = self._ask(
            "receive_message",
            MaxNumberOfMessages=_AT_ONCE,
            WaitTimeSeconds=LONG_POLL_SECONDS,
            MessageSystemAttributeNames=["ApproximateReceiveCount"],
        )
        return [
            Message(
                one["MessageId"],
                one["ReceiptHandle"],
                one["Body"],
                int(one.get("Attributes", {}).get("ApproximateReceiveCount", 1)),
            )
            for one in answer.get("Messages", [])
        ]

    def event(self, message: Message) -> object:
        return parse_json(message.body)

    def delete(self, messages: Sequence[Message]) -> None:
        for start in range(0, len(messages), _AT_ONCE):
            entries = [
                {"Id": str(number), "ReceiptHandle": message.receipt}
                for number, message in enumerate(messages[start : start + _AT_ONCE])
            ]
            self._ask("delete_message_batch", Entries=entries)  # delivered again, which changes nothing

    def _ask(self, action: str, **arguments: Any) -> dict[str, Any]:
        try:
            answer: dict[str, Any] = getattr(self._client, action)(QueueUrl=self._url, **arguments)
            return answer
        except self._failures as error:
            raise Unavailable(f"{self.name}: {error}") from None
