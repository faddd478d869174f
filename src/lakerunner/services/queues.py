"""Open the queues that settings name. A new kind is a line here and a module beside `sqs.py`."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping

from lakerunner.model.errors import UserError
from lakerunner.services import azure_queue, sqs
from lakerunner.services.azure_queue import AzureQueue
from lakerunner.services.pubsub_gcp import PubsubQueue
from lakerunner.services.queue_door import Queue
from lakerunner.services.sqs import SqsQueue
from lakerunner.settings import Settings

Open = Callable[[Settings, Mapping[str, str]], Queue]
# By the setting that names a queue: the options that it takes, and the function that opens it with the given ones.
QUEUES: dict[str, tuple[Collection[str], Open]] = {
    "sqs_queue_url": (sqs.OPTIONS, lambda settings, options: SqsQueue(settings.sqs_queue_url, options)),
    "pubsub_subscription": (
        (),
        lambda settings, _: PubsubQueue(settings.pubsub_subscription, settings.pubsub_endpoint),
    ),
    "azure_queue_url": (azure_queue.OPTIONS, lambda settings, options: AzureQueue(settings.azure_queue_url, options)),
}


def open_queues(settings: Settings) -> list[Queue]:
    check_queue_options(settings)
    given = settings.queue_options.items()
    return [
        opened(settings, {name: value for name, value in given if name in takes}) for takes, opened in _named(settings)
    ]


def check_queue_options(settings: Settings) -> None:
    """Raise UserError for an option that none of the queues takes."""
    known = {option for takes, _ in _named(settings) for option in takes}
    unknown = sorted(settings.queue_options.keys() - known)
    if unknown:
        words = ", ".join(sorted(known)) or "none, because no queue that takes options is set"
        raise UserError(f"setting queue_options: unknown option {unknown[0]!r}; known options: {words}")


def _named(settings: Settings) -> list[tuple[Collection[str], Open]]:
    return [QUEUES[name] for name in QUEUES if getattr(settings, name)]
