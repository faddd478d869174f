"""Whether a PostgreSQL server answers, found out within a time and without a password.

libpq has PQping for this, which psycopg calls without letting go of Python's global lock: while a frozen server is
pinged nothing else in the process runs. Here libpq connects step by step, and this module waits.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from selectors import EVENT_READ, EVENT_WRITE, DefaultSelector

from psycopg.pq import ConnStatus, PGconn, PollingStatus

# What a server replies, and PQping takes for no answer: it starts, stops, or recovers. In another language of the
# server's it is taken for an answer, and the connection then fails by itself.
_NOT_NOW = b"the database system is"


def server_answers(conninfo: str, seconds: float, clock: Callable[[], float]) -> bool:
    """Whether the server sends anything back to a connection. One that refuses it, for its password or because there
    are too many, is there."""
    end = clock() + seconds
    connection = PGconn.connect_start(conninfo.encode())
    heard = False
    try:
        while connection.status != ConnStatus.BAD:
            state = connection.connect_poll()
            if state == PollingStatus.OK:
                return True
            if state == PollingStatus.FAILED:
                break
            reads = state == PollingStatus.READING
            with DefaultSelector() as waiting:
                waiting.register(connection.socket, EVENT_READ if reads else EVENT_WRITE)
                if not waiting.select(max(0.0, end - clock())):
                    return heard
            heard = heard or (reads and _has_bytes(connection.socket))
        return heard and _NOT_NOW not in connection.error_message
    finally:
        connection.finish()


def _has_bytes(descriptor: int) -> bool:
    """A socket that the other side closed can be read too, and has none."""
    with socket.socket(fileno=os.dup(descriptor)) as peer:
        try:
            return bool(peer.recv(1, socket.MSG_PEEK))
        except OSError:
            return False
