"""The random rows that random LogQL is asked about: the same for the same seed.

Comes in: a seed. Goes out: deliveries, each the rows of one request by Loki push or OTLP; and what LogQL must see of
each row, stated here by hand and not by the code of the product: its line, the labels of its stream, its metadata.
What always holds: some rows share their time with others, some deliveries come twice.
"""

from __future__ import annotations

import json
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from fuzz.logql.levels import level_of

START = 1_709_287_200_000_000_000  # 2024-03-01 10:00
SECOND = 1_000_000_000
SPAN = 900 * SECOND
END = START + SPAN

_WORDS = ("refused", "timeout", "user", "cart", "Cart", "order-7", "x=1", "é", "日本", "500", "10.0.0.7", "a b", "it's")
_METHODS = ("GET", "POST", "put", "")
_AMOUNTS = ("1", "2", "3.5", "-4", "1e3", "0", "abc", "", "12ms", "1.5s", "-2m", "5KB", "7B", "1MiB", "0x1p4", "NaN")
_TEXT_LEVELS = ("info", "warn", "error", "Error", "WARNING", "debug", "nonsense", "err")


@dataclass(frozen=True)
class Row:
    """`resource`, `attributes` and the rest are what is sent; `stream`, `metadata` and `line` what LogQL sees.
    `arrival` orders all rows by their coming."""

    time: int
    line: str
    stream: Mapping[str, str]
    metadata: Mapping[str, str]
    arrival: int = 0
    sent: Mapping[str, str] = field(default_factory=dict)
    severity: str = ""
    number: int = 0
    trace_id: str = ""


@dataclass(frozen=True)
class Delivery:
    kind: str  # "loki" or "otlp"
    rows: tuple[Row, ...]
    resource: Mapping[str, str] = field(default_factory=dict)  # of OTLP


def random_deliveries(seed: int, count: int = 5, rows: int = 60) -> list[Delivery]:
    chance = random.Random(seed)
    made: list[Delivery] = []
    for number in range(count):
        make = _loki if number % 3 != 2 else _otlp
        made.append(make(chance, rows))
    again = chance.sample(range(count), 1)
    deliveries = [*made, *(made[number] for number in again)]
    return [_numbered(delivery, place * 100_000) for place, delivery in enumerate(deliveries)]


def seen_rows(deliveries: Sequence[Delivery]) -> list[Row]:
    """Return the rows that queries see: a delivery that came twice counts once, where it came last, as in a merge."""
    seen: list[tuple[object, ...]] = []
    found: list[Row] = []
    for delivery in reversed(deliveries):
        key = tuple(replace(row, arrival=0) for row in delivery.rows)
        if key not in seen:
            seen.append(key)
            found += delivery.rows
    return found


def _numbered(delivery: Delivery, base: int) -> Delivery:
    return replace(delivery, rows=tuple(replace(row, arrival=base + n) for n, row in enumerate(delivery.rows)))


# ---- rows

_STREAMS = (
    {"app": "cart", "env": "prod"},
    {"app": "cart", "env": "dev", "level": "error"},
    {"app": "pay", "env": "prod", "pod": "p-1"},
    {"app": "pay", "pod": "p-2", "status": "stream"},
    {"job": "shop/é", "env": "prod"},
    {"env": "lost"},
)
_RESOURCES = (
    {"service.name": "cart", "deployment.environment": "prod", "host.name": "h1"},
    {"service.name": "pay", "k8s.pod.name": "p-1", "k8s.namespace.name": "shop", "os.type": "linux"},
    {"host.name": "h2", "k8s.container.name": "c1"},
)
_SERVICE = {"app": "app", "job": "job", "k8s_container_name": "k8s_container_name"}
_INDEXED = ("service.name", "deployment.environment", "k8s.pod.name", "k8s.namespace.name", "k8s.container.name")


def _loki(chance: random.Random, count: int) -> Delivery:
    streams = chance.sample(_STREAMS, 3)
    times = _times(chance, count)
    rows = []
    for time in times:
        sent = chance.choice(streams)
        metadata = _metadata(chance)
        line = random_line(chance)
        level = level_of(sent, metadata, line)
        labels = {**sent, "service_name": _service(sent)}
        rows.append(Row(time, line, labels, {**metadata, "detected_level": level}, sent={**metadata}))
    return Delivery("loki", tuple(rows))


def _otlp(chance: random.Random, count: int) -> Delivery:
    resource = chance.choice(_RESOURCES)
    labels = {_name(key): value for key, value in resource.items() if key in _INDEXED}
    others = {_name(key): value for key, value in resource.items() if key not in _INDEXED}
    labels["service_name"] = labels.get("service_name") or _service(labels)
    rows = []
    for time in _times(chance, count):
        sent = {key: value for key, value in _metadata(chance).items() if key != "trace_id"}
        severity, number = chance.choice((("", 0), ("ERROR", 17), ("", 13), ("Notice", 10), ("info", 0)))
        trace = f"{chance.randrange(1, 4):032x}" if chance.random() < 0.5 else ""
        line = random_line(chance)
        fixed = {"severity_text": severity, "severity_number": str(number or ""), "trace_id": trace}
        metadata = {_name(key): value for key, value in sent.items()}
        metadata |= {key: value for key, value in fixed.items() if value}
        metadata |= others
        metadata["detected_level"] = level_of(labels, metadata, line)
        rows.append(Row(time, line, labels, metadata, 0, sent, severity, number, trace))
    return Delivery("otlp", tuple(rows), resource)


def _name(key: str) -> str:
    return key.replace(".", "_")


def _service(labels: Mapping[str, str]) -> str:
    return next((labels[name] for name in ("app", "k8s_container_name", "job") if name in labels), "unknown_service")


def _times(chance: random.Random, count: int) -> list[int]:
    """Return times, some equal, some a nanosecond apart, some on the bounds of windows."""
    found: list[int] = []
    while len(found) < count:
        time = START + chance.randrange(SPAN)
        time = chance.choice((time, time - time % SECOND, time - time % (60 * SECOND)))
        found += [time + chance.choice((0, 0, 1))] * chance.choice((1, 1, 1, 2, 3))
    chance.shuffle(found)
    return found[:count]


def _metadata(chance: random.Random) -> dict[str, str]:
    found = {
        "trace_id": f"{chance.randrange(1, 4):032x}",
        "user": chance.choice(("ann", "bob", "")),
        "took": chance.choice(_AMOUNTS[:6]),
        "app": "metadata",
        "level": chance.choice(_TEXT_LEVELS),
    }
    # Empty attributes of OTLP and of pushes differ; they have tests of their own.
    return {name: value for name, value in found.items() if value and chance.random() < 0.2}


# ---- lines


def random_line(chance: random.Random) -> str:
    kinds = (_json, _damaged, _logfmt, _access, _plain, _packed, _odd)
    return chance.choices(kinds, (30, 8, 25, 15, 10, 4, 8))[0](chance)


def _members(chance: random.Random, depth: int = 2) -> dict[str, object]:
    found: dict[str, object] = {
        "status": chance.choice((200, 404, 500, "500", "ok", 2.5)),
        "method": chance.choice(_METHODS),
        "took": chance.choice(_AMOUNTS),
        "size": chance.choice(_AMOUNTS),
        "msg": " ".join(chance.choices(_WORDS, k=2)),
        "app": chance.choice(("inner", "cart")),
        "trace_id": f"{chance.randrange(1, 4):032x}",
        "level": chance.choice(_TEXT_LEVELS),
        "ok": chance.choice((True, False, None)),
        "list": [1, "a", {"b": 2}],
        "a.b c": "dotted",
        "1st": "digit",
        "addr": chance.choice(("10.0.0.7", "10.9.0.1", "::1", "none")),
        'quo"te\n': 'in "quotes"\t\\ é',
        "": "empty",
    }
    if depth:
        found["user"] = _members(chance, depth - 1) if chance.random() < 0.5 else {"id": 7, "name": "ann"}
    names = [name for name in found if chance.random() < 0.4]
    chance.shuffle(names)
    return {name: found[name] for name in names}


def _json(chance: random.Random) -> str:
    separators = chance.choice(((",", ":"), (", ", ": ")))
    return json.dumps(_members(chance), ensure_ascii=chance.random() < 0.5, separators=separators)


def _damaged(chance: random.Random) -> str:
    text = _json(chance)
    at = chance.randrange(len(text))
    change = chance.choice(("cut", "sign", "more", "blank"))
    if change == "cut":
        return text[:at]
    if change == "more":
        return text + chance.choice((" trailing", "}", ' {"status": 1}'))
    if change == "blank":
        return " " + text
    return text[:at] + chance.choice('{}[]",:x\\') + text[at + 1 :]


def _logfmt(chance: random.Random) -> str:
    pairs = [
        f"status={chance.choice((200, 404, 500, 'ok', ''))}",
        f"method={chance.choice(_METHODS)}",
        f"took={chance.choice(_AMOUNTS)}",
        f"size={chance.choice(_AMOUNTS)}",
        f"level={chance.choice(_TEXT_LEVELS)}",
        'msg="two words \\"quoted\\" \\u00e9"',
        "app=inner",
        "addr=10.0.0.7",
        "a.b=dotted",
        "alone",
        "user=ann",
        chance.choice(('bad="open', "=x", 'a"b=c', "a==b", 'bad="\\q"', "é=ü", "1st=digit")),
    ]
    found = [pair for pair in pairs[:-1] if chance.random() < 0.4]
    found += pairs[-1:] if chance.random() < 0.25 else []
    chance.shuffle(found)
    return chance.choice((" ", "  ", " ")).join(found)


def _access(chance: random.Random) -> str:
    took = chance.choice(_AMOUNTS)
    return (
        f"10.0.0.{chance.randrange(9)} - {chance.choice(_METHODS)} /{chance.choice(_WORDS)} "
        f"{chance.choice((200, 404, 500))} took {took}"
    )


def _plain(chance: random.Random) -> str:
    return " ".join(chance.choices((*_WORDS, "ERROR", "[warn]", "info:"), k=chance.randrange(1, 6)))


def _packed(chance: random.Random) -> str:
    packed: dict[str, object] = {"pod": "p-9", "took": chance.choice(_AMOUNTS), "n": 3, "_entry": random_line(chance)}
    if chance.random() < 0.3:
        del packed["_entry"]
    return json.dumps(packed)


_ODD = ("", " ", "{", "}", "{}", "[]", '["a"]', "null", '"x"', "5", "=", "a=", "a\nb refused", "\t", "<_>", "-")


def _odd(chance: random.Random) -> str:
    coloured = f"\x1b[31m{chance.choice(_WORDS)}\x1b[0m took \x1b[1;32m5\x1b[m"
    return chance.choice((*_ODD, coloured, "x" * chance.choice((100, 5000))))
