"""Notifications from a Google Pub/Sub subscription, pulled over its REST interface.

Credentials come from Google's default chain (GOOGLE_APPLICATION_CREDENTIALS, gcloud, the machine). With
`pubsub_endpoint`, as for an emulator, none are sent. Pub/Sub counts deliveries only if the subscription has a
dead-letter policy, which then decides what happens to a message that is not a notification.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

import httpx
import orjson

from lakerunner.model.errors import Unavailable, UserError
from lakerunner.services.queue_door import Message

_GOOGLE = "https://pubsub.googleapis.com"
_SCOPE = "https://www.googleapis.com/auth/pubsub"
_AT_ONCE = 100
_PULL_SECONDS = 60.0  # longer than Pub/Sub takes to answer a pull without messages
_SUBSCRIPTION = re.compile(r"projects/[^/\s]+/subscriptions/[^/\s]+")


class PubsubQueue:
    provider = "gcp"

    def __init__(self, subscription: str, endpoint: str) -> None:
        if not _SUBSCRIPTION.fullmatch(subscription):
            raise UserError(f"setting pubsub_subscription {subscription!r}: write projects/PROJECT/subscriptions/NAME")
        self.name = f"pubsub {subscription.rpartition('/')[2]}"
        self._url = f"{(endpoint or _GOOGLE).rstrip('/')}/v1/{subscription}"
        self._authorization = _no_token if endpoint else google_token(self.name)
        self._http = httpx.Client(timeout=httpx.Timeout(_PULL_SECONDS, connect=5))

    def receive(self) -> list[Message]:
        answer = self._ask("pull", {"maxMessages": _AT_ONCE})
        try:
            return [_message(received) for received in answer.get("receivedMessages", [])]
        except (KeyError, TypeError, AttributeError):
            raise Unavailable(f"{self.name}: not the answer of Pub/Sub to a pull") from None

    def event(self, message: Message) -> object:
        return {"message": orjson.loads(message.body)}

    def delete(self, messages: Sequence[Message]) -> None:
        self._ask("acknowledge", {"ackIds": [message.receipt for message in messages]})

    def _ask(self, action: str, body: dict[str, Any]) -> dict[str, Any]:
        try:
            answer = self._http.post(f"{self._url}:{action}", json=body, headers=self._authorization())
        except httpx.HTTPError as error:
            if action == "pull" and isinstance(error, httpx.ReadTimeout):
                return {}  # nothing came
            raise Unavailable(f"cannot reach {self.name}: {error or type(error).__name__}") from None
        if answer.status_code != httpx.codes.OK:
            raise Unavailable(f"{self.name} returned {answer.status_code} for {action}: {answer.text[:300]}")
        try:
            found: dict[str, Any] = orjson.loads(answer.content or b"{}")
        except orjson.JSONDecodeError:
            raise Unavailable(f"{self.name} did not return JSON: check that it is Pub/Sub") from None
        return found


def _message(received: dict[str, Any]) -> Message:
    message = received["message"]
    body = orjson.dumps(message).decode()
    return Message(message.get("messageId", ""), received["ackId"], body, received.get("deliveryAttempt") or None)


def google_token(name: str) -> Callable[[], dict[str, str]]:
    """Return a function that gives the Authorization header, with a token that is renewed in time."""
    import google.auth
    import urllib3
    from google.auth.exceptions import DefaultCredentialsError, GoogleAuthError
    from google.auth.transport.urllib3 import Request

    try:
        credentials, _ = google.auth.default(scopes=[_SCOPE])
    except DefaultCredentialsError as error:
        raise UserError(f"{name}: no Google credentials found: {error}") from None
    request = Request(urllib3.PoolManager())  # type: ignore[no-untyped-call]

    def authorization() -> dict[str, str]:
        try:
            if not credentials.valid:
                credentials.refresh(request)  # type: ignore[no-untyped-call]
        except GoogleAuthError as error:
            raise Unavailable(f"{name}: no token from Google: {error}") from None
        return {"authorization": f"Bearer {credentials.token}"}

    return authorization


def _no_token() -> dict[str, str]:
    return {}
