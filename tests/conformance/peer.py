"""Run scripts against a real Prometheus that holds one state of a script: our own scripts must expect what it answers.

    python -m conformance.peer [FILE-OR-FOLDER ...]

prints what it answers differently.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import httpx
import pyarrow as pa

from conformance.check import problem
from conformance.http_subject import Address, HttpSubject, same_as_shown
from conformance.remote_write import request_of
from conformance.run import Failure, scripts
from conformance.script import Case, State, read_script
from servers.peers import running_peer
from servers.ports import free_port

_FEATURES = (
    "promql-experimental-functions,promql-extended-range-selectors,promql-binop-fill-modifiers,"
    "use-start-timestamps,st-storage,histograms-st-encoding,xor2-encoding"
)
_DELAYED_NAMES = ",promql-delayed-name-removal"
OURS = ("sketches.test",)  # scripts of functions that Prometheus does not have
_CONFIG = "storage: {tsdb: {out_of_order_time_window: 100w}}\n"
_MESSAGE = "io.prometheus.write.v2.Request"


@contextmanager
def prometheus(work: Path, *, delayed_names: bool = True, config: str = _CONFIG) -> Iterator[str]:
    """Start an empty Prometheus and yield its address."""
    work.mkdir(parents=True)
    (work / "prometheus.yml").write_text(config)
    url = f"http://127.0.0.1:{free_port()}"
    arguments = [
        f"--config.file={work / 'prometheus.yml'}",
        f"--storage.tsdb.path={work / 'data'}",
        f"--web.listen-address={url.removeprefix('http://')}",
        "--storage.tsdb.retention.time=100y",
        "--web.enable-remote-write-receiver",
        f"--web.remote-write-receiver.accepted-protobuf-messages={_MESSAGE}",
        f"--enable-feature={_FEATURES}{_DELAYED_NAMES if delayed_names else ''}",
    ]
    with running_peer("prometheus", arguments, f"{url}/-/ready", work / "log"):
        yield url


def write(url: str, state: State) -> None:
    there = ((labels, samples) for labels, samples in state.series.items() if samples)
    body = pa.Codec("snappy").compress(request_of(there), asbytes=True)
    headers = {
        "content-type": f"application/x-protobuf;proto={_MESSAGE}",
        "content-encoding": "snappy",
        "x-prometheus-remote-write-version": "2.0.0",
    }
    response = httpx.post(f"{url}/api/v1/write", content=body, headers=headers, timeout=60)
    if response.status_code != 204:
        raise ConnectionError(f"{response.status_code} {response.text}")


def failures_of(cases: Sequence[Case], work: Path) -> Iterator[Failure]:
    """Return the cases of one script that Prometheus answers differently."""
    for number in sorted({case.state.number for case in cases}):
        same_state = [case for case in cases if case.state.number == number]
        state, place = same_state[0].state, work / f"{same_state[0].path.stem}-{number}"
        started = prometheus(place, delayed_names=state.delayed_names)
        with started as url, httpx.Client(timeout=60) as client:
            if state.series:
                write(url, state)
            subject = HttpSubject(client, lambda _, url=url: Address(url, {}))  # type: ignore[misc]
            for case in same_state:
                reason = problem(case, subject, same_as_shown, moved=False)
                if reason:
                    yield Failure(case, reason)


def main(named: Sequence[str]) -> int:
    found = 0
    with tempfile.TemporaryDirectory() as work:
        for path in (one for one in scripts(named, "promql") if one.name not in OURS):
            cases = [case for case in read_script(path) if case.starts_are_unknown]
            for failure in failures_of(cases, Path(work)):
                found += 1
                print(f"{failure}\n", flush=True)
            print(f"{path.name}: {len(cases)} cases", flush=True)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
