"""Send raw HTTP requests as bytes, as no HTTP library would, and judge what comes back."""

from __future__ import annotations

import re
import socket
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

from hostile.inputs import RawRequest
from hostile.two_tenants import ANSWER_SECONDS, Fault, TwoTenants

_STATUS = re.compile(rb"HTTP/1\.[01] (\d{3})")
_AT_ONCE = 8  # most of a refusal by time is waiting
_QUIET_SECONDS = 1.0  # an answer without an end: what came until then is all of it


def run_requests(lake: TwoTenants, given: Sequence[RawRequest]) -> list[Fault]:
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        return [fault for faults in pool.map(lambda one: _faults_of(lake, one), given) for fault in faults]


def _faults_of(lake: TwoTenants, request: RawRequest) -> list[Fault]:
    data = request.data(lake.facts)
    try:
        answer = exchange(int(lake.facts["port"]), data)
    except TimeoutError:
        return [Fault(request.place, "no answer: it hangs", request.text)]
    text = answer.decode("latin-1")
    leaks = lake.leaks(data.decode("latin-1"), text)
    found = [Fault(request.place, f"the answer holds {leak!r}", text) for leak in leaks]
    statuses = [int(match) for match in _STATUS.findall(answer)]
    if not any(_is_expected(expect, statuses) for expect in request.expect):
        what = f"expected {' or '.join(request.expect)}, got {statuses or 'no answer'}"
        found.append(Fault(request.place, what, f"{text[:200]} <- {request.text}"))
    return found


def exchange(port: int, data: bytes) -> bytes:
    """Send the bytes over a new connection and return all that comes back, until the server is done with it.

    TimeoutError if the server neither answers nor closes.
    """
    received = bytearray()
    with socket.create_connection(("127.0.0.1", port), timeout=ANSWER_SECONDS) as connection:
        with suppress(ConnectionError):  # it may refuse by closing before all is sent; its answer can still be read
            connection.sendall(data)
        with suppress(ConnectionError):
            while True:
                try:
                    part = connection.recv(1 << 16)
                except TimeoutError:
                    if not received:
                        raise
                    break
                if not part:
                    break
                received += part
                connection.settimeout(_QUIET_SECONDS)
    return bytes(received)


def _is_expected(expect: str, statuses: list[int]) -> bool:
    """Judge the last status: a 100 or 101 may come before it, and pipelined requests have several."""
    if expect == "closed":
        return not statuses
    if not statuses:
        return expect == "any"
    last = statuses[-1]
    if expect == "any":
        return last < 500 or last in (501, 503, 505)
    return 400 <= last < 500 if expect == "refused" else str(last) == expect
