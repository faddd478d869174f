"""The ten services, their pods and releases, and the resource that each pod's telemetry carries.

A resource code packs (release, service, pod) into one int64, so that rows can be grouped by it. A release has its
own pods: a new one starts with new names, new processes and counters from zero.
"""

from __future__ import annotations

from dataclasses import dataclass
from uuid import UUID

from lakerunner_demo.noise import I64, draw_one
from lakerunner_demo.wire import Value, constant, key_values, nested

NAMESPACE = "shop"
SDK_VERSIONS = {
    "cpp": "1.19.0",
    "dotnet": "1.11.2",
    "go": "1.35.0",
    "java": "1.48.0",
    "nodejs": "2.0.0",
    "python": "1.31.1",
    "ruby": "1.8.0",
    "rust": "0.29.1",
}
_NODES = 5
_SERVICE_BITS, _POD_BITS = 4, 3
_LETTERS = "bcdfghjklmnpqrstvwxz2456789"  # as in Kubernetes: no vowels, no look-alikes


@dataclass(frozen=True)
class Service:
    """`slowdown` says by how many tenths its own work takes longer at the height of the incident."""

    name: str
    language: str
    package: str
    pods: int
    port: int
    version: str
    slowdown: int = 0


SERVICES = (
    Service("frontend", "nodejs", "@shop/storefront", 3, 8080, "5.12.0", slowdown=4),
    Service("cart", "dotnet", "Shop.Cart", 3, 7070, "1.18.4", slowdown=2),
    Service("checkout", "go", "shop/checkout", 3, 5050, "3.3.1", slowdown=15),
    Service("payment", "java", "com.shop.payment", 3, 50051, "2.7.3", slowdown=25),
    Service("currency", "cpp", "shop.currency", 2, 7001, "1.2.9"),
    Service("shipping", "rust", "shop_shipping", 2, 50055, "0.9.17"),
    Service("catalog", "go", "shop/catalog", 3, 3550, "4.1.0"),
    Service("recommendation", "python", "shop.recommendation", 2, 9001, "2.2.2"),
    Service("email", "ruby", "Shop::Email", 2, 6060, "1.0.6"),
    Service("ad", "java", "com.shop.ad", 2, 9555, "1.9.0"),
)
SERVICE_INDEX = {service.name: index for index, service in enumerate(SERVICES)}
BAD_PAYMENT_VERSION = "2.8.0"


def service_named(name: str) -> Service:
    return SERVICES[SERVICE_INDEX[name]]


def resource_codes(service: str, releases: I64, pods: I64) -> I64:
    return (releases << (_SERVICE_BITS + _POD_BITS)) | (SERVICE_INDEX[service] << _POD_BITS) | pods


@dataclass(frozen=True)
class Pod:
    """One pod of one release, in the shop of this world."""

    world: int
    service: Service
    release: int
    ordinal: int

    @classmethod
    def of(cls, world: int, code: int) -> Pod:
        service = SERVICES[code >> _POD_BITS & ((1 << _SERVICE_BITS) - 1)]
        return cls(world, service, code >> (_SERVICE_BITS + _POD_BITS), code & ((1 << _POD_BITS) - 1))

    @property
    def version(self) -> str:
        """Every second release of payment is the bad one."""
        if self.service.name == "payment" and self.release % 2:
            return BAD_PAYMENT_VERSION
        return self.service.version

    @property
    def name(self) -> str:
        replica_set = _letters(self._draw("replica set", ordinal=0), 9)
        return f"{self.service.name}-{replica_set}-{_letters(self._draw('pod', self.ordinal), 5)}"

    def attributes(self) -> dict[str, Value]:
        node = f"shop-pool-{self._draw('node', self.ordinal) % _NODES + 1}"
        identity = UUID(int=self._draw("high", self.ordinal) << 64 | self._draw("low", self.ordinal), version=4)
        return {
            "service.name": self.service.name,
            "service.version": self.version,
            "service.namespace": NAMESPACE,
            "service.instance.id": str(identity),
            "deployment.environment.name": "production",
            "k8s.namespace.name": NAMESPACE,
            "k8s.deployment.name": self.service.name,
            "k8s.pod.name": self.name,
            "k8s.node.name": node,
            "host.name": f"{node}.eu-west-1.shop.internal",
            "cloud.region": "eu-west-1",
            "process.pid": 1 + self._draw("pid", self.ordinal) % 40,
            "telemetry.sdk.name": "opentelemetry",
            "telemetry.sdk.language": self.service.language,
            "telemetry.sdk.version": SDK_VERSIONS[self.service.language],
        }

    def resource(self) -> bytes:
        """Encode the resource as field 1 of ResourceLogs, ResourceMetrics and ResourceSpans."""
        return constant(nested(1, *key_values(1, self.attributes())))

    def _draw(self, name: str, ordinal: int) -> int:
        return draw_one(self.world, f"{self.service.name} {name}", self.release << _POD_BITS | ordinal)


def _letters(bits: int, count: int) -> str:
    out = []
    for _ in range(count):
        bits, letter = divmod(bits, len(_LETTERS))
        out.append(_LETTERS[letter])
    return "".join(out)
