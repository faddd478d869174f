"""The process that sandboxes are forked from: everything loaded, DuckDB opened, one thread, no secrets.

`python -m lakerunner.query.sandbox.zygote FD` reads requests from the socket FD and answers each with JSON.

    fork  `directory`, `limits`, with the sandbox's two sockets: answers its process id
    reap  `pid` of a sandbox that ended or was killed: answers its exit status and its largest resident size

Forking takes milliseconds where starting and loading would take most of a second. So a sandbox can be discarded after
any query, and one organization's sandbox is never handed to another. Invariants: the zygote ends with the server, its
sandboxes end with it, and its environment is what process.py passed.
"""

from __future__ import annotations

import os
import signal
import socket
import sys
from pathlib import Path
from typing import Any

import orjson

from lakerunner.query.sandbox.child import Child
from lakerunner.query.sandbox.confine import confine, die_with_parent
from lakerunner.query.sandbox.instance import limit, lock, open_instance
from lakerunner.query.sandbox.protocol import VALUE, send_json

_REQUEST_BYTES = 64 << 10
_NICENESS = 5  # of sandboxes: the server, on which all organizations depend, comes first


def main() -> None:
    server = socket.socket(fileno=int(sys.argv[1]))
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the server, which closes its end
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    os.nice(_NICENESS)
    root = open_instance()
    while True:
        data, descriptors, _, _ = socket.recv_fds(server, _REQUEST_BYTES, 2, socket.MSG_CMSG_CLOEXEC)
        if not data:
            return
        request = orjson.loads(data)
        if "reap" in request:
            server.sendall(orjson.dumps(_reap(request["reap"])))
            continue
        zygote, pid = os.getpid(), os.fork()
        if pid == 0:
            server.close()
            die_with_parent()
            if os.getppid() == zygote:  # else the zygote died before die_with_parent took effect
                _become_sandbox(root, request, descriptors)
            os._exit(1)
        for descriptor in descriptors:
            os.close(descriptor)
        server.sendall(orjson.dumps({"pid": pid}))


def _become_sandbox(root: Any, request: dict[str, Any], descriptors: list[int]) -> None:
    code = 1
    try:
        data, control = (socket.socket(fileno=descriptor) for descriptor in descriptors)
        directory, limits = Path(request["directory"]), request["limits"]
        limit(root, directory, limits)
        missing = confine(directory, limits["data_bytes"])
        lock(root, limits["threads"])
        send_json(data, VALUE, {"missing": missing})
        Child(root, data, control).serve()
        code = 0
    finally:
        os._exit(code)


def _reap(pid: int) -> dict[str, int]:
    try:
        _, status, usage = os.wait4(pid, 0)
    except ChildProcessError:
        return {"status": 0, "resident_bytes": 0}
    return {"status": os.waitstatus_to_exitcode(status), "resident_bytes": usage.ru_maxrss << 10}


if __name__ == "__main__":
    main()
