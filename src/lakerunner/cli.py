"""The command line, and the composition root: a table of commands, each loaded when it is called."""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Iterator, Mapping
from importlib import import_module
from io import TextIOWrapper

import click

from lakerunner.commands.options import EPILOG
from lakerunner.model.display import escape_controls
from lakerunner.model.errors import LakerunnerError, full_message

_MODULES = {  # command: module of lakerunner.commands
    **dict.fromkeys(("pubsub", "boxer", "ingest", "compact", "rollup", "sweeper"), "up"),
    **dict.fromkeys(("materialize", "query-api", "query-worker"), "up"),
    "backfill": "backfill",
    "backup": "backup",
    "cardinality": "cardinality",
    "demo": "demo",
    "fsck": "fsck",
    "keys": "orgs",
    "logql": "logql",
    "objects": "objects",
    "orgs": "orgs",
    "promql": "query",
    "repair": "fsck",
    "restore": "backup",
    "retention": "orgs",
    "rules": "rules",
    "settings": "settings",
    "sql": "query",
    "status": "status",
    "streams": "streams",
    "sweep": "sweep",
    "up": "up",
    "work": "objects",
}
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)  # the disk is full, which is not a bug


class _Commands(Mapping[str, click.Command]):
    """The commands by name. A lookup imports the command's module and returns its attribute of the same name."""

    def __getitem__(self, name: str) -> click.Command:
        module = import_module(f"lakerunner.commands.{_MODULES[name]}")
        command: click.Command = getattr(module, name.replace("-", "_"))
        return command

    def __iter__(self) -> Iterator[str]:
        return iter(_MODULES)

    def __len__(self) -> int:
        return len(_MODULES)


@click.group(
    commands=_Commands(),
    epilog=EPILOG,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.version_option(package_name="lakerunner")
def cli() -> None:
    """Lakerunner: a telemetry lake.

    OpenTelemetry logs, metrics and traces land as files in object storage, Spark turns them into sorted
    Parquet segments, PostgreSQL indexes the segments, DuckDB answers queries over them.

    \b
    Start here:
      lakerunner demo                 everything, with a demo shop's telemetry
      lakerunner up                   everything, with your telemetry
      lakerunner sql "select service_name, count(*) from logs group by 1"
      lakerunner promql 'sum by (job) (rate(http_requests_total[5m]))'
      lakerunner logql '{service_name="cart"} |= "refused"'
    """


def main() -> None:
    """Run the command line. An error of the error tree is one line and its exit code; only bugs show a traceback."""
    os.umask(0o077)  # files that we write may contain telemetry: only their owner may read them
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="replace")  # Latin-1, for example, cannot encode the frame of a table
    try:
        cli()
    except LakerunnerError as error:
        click.echo(escape_controls(f"error: {full_message(error)}"), err=True)
        sys.exit(error.exit_code)
    except OSError as error:
        if error.errno not in _FULL:
            raise
        place = f" {error.filename}" if error.filename else ""
        click.echo(escape_controls(f"error: cannot write{place}: {error.strerror}"), err=True)
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # flushing standard output at exit would fail again
        sys.exit(1)


if __name__ == "__main__":
    main()
