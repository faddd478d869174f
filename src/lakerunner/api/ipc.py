"""Arrow IPC streams, piece by piece."""

from __future__ import annotations


class Sink:
    """A file that Arrow writes to and we empty after each batch."""

    closed = False

    def __init__(self) -> None:
        self._parts: list[bytes] = []

    def write(self, data: bytes) -> int:
        self._parts.append(bytes(data))
        return len(data)

    def take(self) -> bytes:
        data, self._parts = b"".join(self._parts), []
        return data

    def flush(self) -> None:
        """Nothing is buffered elsewhere."""

    def close(self) -> None:
        """The bytes stay until they are taken."""
