"""S3 and SQS for tests, the bucket notifying the queue: moto's server, in this process, on a free loopback port.

moto speaks the services' real protocols and keeps everything in memory. It writes "/" as %2F in the keys of events,
which S3 does not; both decode to the same.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from typing import Any

from botocore.session import get_session
from moto.server import ThreadedMotoServer

from lakerunner.objects.open import StoreAddress

REGION = "us-east-1"
_ACCOUNT = "123456789012"  # moto's own
KEYS = {"access_key_id": "lakerunner", "secret_access_key": "not-a-secret"}


@dataclass(frozen=True)
class AwsServer:
    endpoint: str

    @cache  # noqa: B019 - one server per module
    def client(self, service: str) -> Any:
        return get_session().create_client(
            service,
            region_name=REGION,
            endpoint_url=self.endpoint,
            aws_access_key_id=KEYS["access_key_id"],
            aws_secret_access_key=KEYS["secret_access_key"],
        )

    @property
    def queue_options(self) -> dict[str, str]:
        return {"region": REGION, "endpoint": self.endpoint, **KEYS}

    def bucket(self, name: str) -> StoreAddress:
        """A new bucket."""
        self.client("s3").create_bucket(Bucket=name)
        options = {"endpoint": self.endpoint, "region": REGION, "allow_http": "true", **KEYS}
        return StoreAddress(f"s3://{name}", tuple(options.items()))

    def queue(self, name: str, **attributes: str) -> str:
        """The URL of a new queue."""
        return str(self.client("sqs").create_queue(QueueName=name, Attributes=attributes)["QueueUrl"])

    def arn(self, queue: str) -> str:
        return f"arn:aws:sqs:{REGION}:{_ACCOUNT}:{queue}"

    def notify(self, bucket: str, queue: str) -> None:
        """The bucket tells the queue of objects created from now on; the first message is S3's test event."""
        told = {"QueueArn": self.arn(queue), "Events": ["s3:ObjectCreated:*"]}
        self.client("s3").put_bucket_notification_configuration(
            Bucket=bucket, NotificationConfiguration={"QueueConfigurations": [told]}
        )

    def waiting(self, url: str) -> int:
        """Messages that the queue holds, also those that someone has taken and not deleted."""
        names = ["ApproximateNumberOfMessages", "ApproximateNumberOfMessagesNotVisible"]
        found = self.client("sqs").get_queue_attributes(QueueUrl=url, AttributeNames=names)["Attributes"]
        return sum(int(found[name]) for name in names)


@contextmanager
def aws() -> Iterator[AwsServer]:
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    try:
        host, port = server.get_host_and_port()
        yield AwsServer(f"http://{host}:{port}")
    finally:
        server.stop()
