"""Follow a log query by Loki's tail, and show its lines as they come: those that are there first, oldest first."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import urlencode

import orjson
from websockets.exceptions import ConnectionClosed, InvalidHandshake, InvalidStatus
from websockets.sync.client import connect

from lakerunner.commands.terminal.ask_logql import LogqlCommand, read_entries, write_entries
from lakerunner.commands.terminal.ask_sql import say
from lakerunner.commands.terminal.client import Client, plain_error
from lakerunner.commands.terminal.show import error_text
from lakerunner.model.display import plural
from lakerunner.model.errors import LakerunnerError, Unavailable, UserError
from lakerunner.model.time import iso_time

_PATH = "/loki/api/v1/tail"
_CONNECT_SECONDS = 10.0
_NORMAL = (1000, 1001)


def follow_lines(client: Client, command: LogqlCommand, now_ns: int) -> int:
    """Show lines until the user or the server ends it; return the exit code, 0 after Ctrl-C."""
    try:
        if command.end or command.at or command.forward:
            raise UserError("--tail has no end: leave out --to, --at and --forward")
        asked = {"query": command.text, "limit": str(command.limit)}
        asked |= {"start": iso_time(command.times(now_ns).start_ns)}
        for frame in tail_frames(client, asked):
            write_entries(read_entries(frame["streams"], forward=True), command, all_of_them=False)
            sys.stdout.flush()
            if dropped := frame.get("dropped_entries"):
                say(f"warning: at least {plural(len(dropped), 'line')} left out, because they came too fast")
    except LakerunnerError as error:
        say(error_text(error, command.text))
        return 1
    except KeyboardInterrupt:
        return 0
    return 0


def tail_frames(client: Client, asked: Mapping[str, str]) -> Iterator[dict[str, Any]]:
    """Yield the frames of a tail. Raise an error with the reason if the server refuses or ends it."""
    url = f"ws{client.url.removeprefix('http')}{_PATH}?{urlencode(asked)}"
    try:
        with connect(
            url, additional_headers=client.headers, ssl=client.ssl, open_timeout=_CONNECT_SECONDS, max_size=None
        ) as socket:
            while True:
                yield orjson.loads(socket.recv())
    except InvalidStatus as refused:
        body = (refused.response.body or b"").decode(errors="replace").strip()
        raise plain_error(refused.response.status_code, body or "the tail was refused") from None
    except ConnectionClosed as ended:
        if ended.rcvd and ended.rcvd.code in _NORMAL:
            return
        raise Unavailable(ended.rcvd.reason if ended.rcvd else "the connection broke off") from None
    except (OSError, InvalidHandshake) as error:
        raise Unavailable(f"the API at {client.url} cannot be reached, or broke off: {error}") from None
