"""Requests as bytes on a socket: what no HTTP client would send."""

from __future__ import annotations

import re
import socket
import ssl
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

SECONDS = 60.0
_UNVERIFIED = ssl._create_unverified_context()  # these clients look at bytes, not at who sends them
_REPEATED = re.compile(r"\{(.)\*(\d+)\}")


@dataclass(frozen=True)
class Answer:
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def text(self) -> str:
        return self.body.decode()


class Connection:
    """One connection; answers are read to their end, as Content-Length or chunks state it."""

    def __init__(self, opened: socket.socket) -> None:
        self.socket = opened
        self._rest = b""

    def send(self, data: bytes) -> None:
        self.socket.sendall(data)

    def answer(self) -> Answer:
        head = self._until(b"\r\n\r\n").decode("latin-1").split("\r\n")
        status = int(head[0].split()[1])
        pairs = (line.split(":", 1) for line in head[1:] if line)
        headers = {name.lower(): value.strip() for name, value in pairs}
        if headers.get("transfer-encoding") == "chunked":
            return Answer(status, headers, b"".join(self._chunks()))
        return Answer(status, headers, self._exactly(int(headers.get("content-length", "0"))))

    def await_answer(self) -> None:
        """Until its first bytes are here."""
        self._more()

    def ended(self) -> bool:
        """Whether the server closed it, with nothing more to read. Waits for the one or the other."""
        try:
            return self._rest == b"" and self.socket.recv(1) == b""
        except ConnectionResetError:
            return True

    def _chunks(self) -> Iterator[bytes]:
        while size := int(self._until(b"\r\n"), 16):
            yield self._exactly(size + 2)[:-2]
        self._until(b"\r\n")

    def _until(self, end: bytes) -> bytes:
        while end not in self._rest:
            self._more()
        found, _, self._rest = self._rest.partition(end)
        return found

    def _exactly(self, size: int) -> bytes:
        parts, left = [self._rest[:size]], size - len(self._rest)
        self._rest = self._rest[size:]
        while left > 0:
            data = self.socket.recv(min(left, 1 << 20))
            assert data, f"the server closed the connection {left} bytes before the end"
            parts.append(data)
            left -= len(data)
        return b"".join(parts)

    def _more(self) -> None:
        data = self.socket.recv(1 << 16)
        assert data, f"the server closed the connection after {self._rest!r}"
        self._rest += data


@contextmanager
def connected(url: str) -> Iterator[Connection]:
    parts = urlsplit(url)
    opened = socket.create_connection((parts.hostname, parts.port), SECONDS)
    with closing(_UNVERIFIED.wrap_socket(opened) if parts.scheme == "https" else opened) as connection:
        connection.settimeout(SECONDS)
        yield Connection(connection)


def asked(url: str, request: bytes) -> Answer:
    with connected(url) as connection:
        connection.send(request)
        return connection.answer()


@dataclass(frozen=True)
class Script:
    """A request from a file: leading lines `# name: value` state what must come back and where it is sent."""

    facts: dict[str, str]
    request: bytes


def read_script(path: Path, places: dict[str, str]) -> Script:
    """CRLF ends the lines of the head. `{length}` is the body's, `{x*9}` is nine times x, `{port}` and the like are
    from `places`."""
    lines = path.read_text().splitlines()
    facts = {}
    while lines[0].startswith("#"):
        name, _, value = lines.pop(0).lstrip("# ").partition(":")
        facts[name.strip()] = value.strip()
    end = lines.index("")
    body = "\n".join(lines[end + 1 :])
    places = places | {"length": str(len(body.encode()))}
    head = "\r\n".join((*lines[:end], "", ""))
    for name, value in places.items():
        head = head.replace(f"{{{name}}}", value)
    head = _REPEATED.sub(lambda found: found[1] * int(found[2]), head)
    return Script(facts, head.encode("latin-1") + body.encode())
