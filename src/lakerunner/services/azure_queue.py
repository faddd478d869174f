"""Notifications from an Azure Storage queue that Event Grid writes to, over the queue service's REST interface.

Credentials are in `queue_options`: `account_key` (and `account_name`, if the URL does not begin with it) or
`sas_token`. Storage queues have neither long polls nor dead-letter queues; they count how often a message was
delivered.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import re
from collections.abc import Mapping, Sequence
from email.utils import formatdate
from urllib.parse import parse_qsl, quote, urlsplit
from xml.etree import ElementTree

import httpx

from lakerunner.model.errors import Unavailable, UserError
from lakerunner.model.notification import parse_json
from lakerunner.services.queue_door import Message

_AT_ONCE = 32  # the most that the service returns in one request
_HIDDEN_SECONDS = 60
_VERSION = "2021-12-02"
_QUEUE = re.compile(r"https?://[^/?#]+(/[^?#]+)")
OPTIONS = {"account_name", "account_key", "sas_token"}


class AzureQueue:
    provider = "azure"

    def __init__(self, url: str, options: Mapping[str, str]) -> None:
        found = _QUEUE.fullmatch(url.rstrip("/"))
        if not found:
            raise UserError(
                f"setting azure_queue_url {url.partition('?')[0]!r}: write https://ACCOUNT.queue.core.windows.net/QUEUE"
            )
        self.name = f"azure queue {found[1].rpartition('/')[2]}"
        self._url = url.rstrip("/")
        self._sas = dict(parse_qsl(options.get("sas_token", "").lstrip("?")))
        self._account = options.get("account_name") or str(urlsplit(url).hostname).partition(".")[0]
        try:
            self._key = base64.b64decode(options.get("account_key", ""), validate=True)
        except ValueError:
            raise UserError(f"{self.name}: option account_key is not base64") from None
        if bool(self._key) == bool(self._sas):
            raise UserError(f"{self.name}: no credentials: set account_key or sas_token in queue_options")
        self._http = httpx.Client(timeout=httpx.Timeout(30, connect=5))

    def receive(self) -> list[Message]:
        limits = {"numofmessages": str(_AT_ONCE), "visibilitytimeout": str(_HIDDEN_SECONDS)}
        answer = self._ask("GET", "/messages", limits)
        try:
            root = ElementTree.fromstring(answer)  # noqa: S314 - of the queue we were told to trust; expat bounds entities
            return [_message(found) for found in root.iter("QueueMessage")]
        except (ElementTree.ParseError, ValueError) as error:
            raise Unavailable(f"{self.name}: not the answer of a storage queue: {error}") from None

    def event(self, message: Message) -> object:
        """Return the notification. Event Grid writes base64 of its JSON; a person may have written the JSON itself."""
        text = message.body.strip()
        if text[:1] in ("{", "["):
            return parse_json(text)
        try:
            return parse_json(base64.b64decode(text, validate=True))
        except ValueError:
            raise UserError("neither JSON nor base64 of JSON") from None

    def delete(self, messages: Sequence[Message]) -> None:
        for message in messages:
            self._ask("DELETE", f"/messages/{quote(message.id, safe='')}", {"popreceipt": message.receipt})

    def _ask(self, method: str, path: str, parameters: dict[str, str]) -> bytes:
        url = self._url + path
        headers = {"x-ms-date": formatdate(usegmt=True), "x-ms-version": _VERSION}
        if self._key:
            headers["authorization"] = self._signature(method, urlsplit(url).path, parameters, headers)
        try:
            answer = self._http.request(method, url, params=parameters | self._sas, headers=headers)
        except httpx.HTTPError as error:
            raise Unavailable(f"cannot reach {self.name}: {error or type(error).__name__}") from None
        gone = method == "DELETE" and answer.status_code == httpx.codes.NOT_FOUND and "MessageNotFound" in answer.text
        if not answer.is_success and not gone:
            code = answer.headers.get("x-ms-error-code", "")
            raise Unavailable(f"{self.name} returned {answer.status_code} {code} for {method}")
        return answer.content

    def _signature(self, method: str, path: str, parameters: dict[str, str], headers: dict[str, str]) -> str:
        """Sign a request by Shared Key, as the service documents it: the verb, eleven empty standard headers, its own
        headers, then account, path and parameters."""
        own = "".join(f"{name}:{headers[name]}\n" for name in sorted(headers))
        resource = f"/{self._account}{path}" + "".join(f"\n{name}:{parameters[name]}" for name in sorted(parameters))
        text = method + "\n" * 12 + own + resource
        digest = hmac.new(self._key, text.encode(), hashlib.sha256).digest()
        return f"SharedKey {self._account}:{base64.b64encode(digest).decode()}"


def _message(found: ElementTree.Element) -> Message:
    said = {part.tag: part.text or "" for part in found}
    try:
        return Message(said["MessageId"], said["PopReceipt"], said["MessageText"], int(said["DequeueCount"]))
    except KeyError as error:
        raise ValueError(f"message has no {error}") from None
