"""What commands share: their options, and settings from the environment and from these."""

from __future__ import annotations

import os
import sys
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click

from lakerunner.model.given import WrongSettings
from lakerunner.settings import Settings, read_settings

EPILOG = "Set any setting as LAKERUNNER_<NAME>; `lakerunner settings` shows the values in force and their sources."
home = click.option(
    "--home",
    type=click.Path(path_type=Path),
    help="Directory of the lake's data; default: LAKERUNNER_HOME, or .lakerunner in the current directory.",
)
store = click.option(
    "--store", metavar="URL", help="Object store: a file, s3, gs or az URL; default: LAKERUNNER_STORE, or HOME/store."
)


@contextmanager
def stopped_by_ctrl_c() -> Iterator[None]:
    """Around the start of a process, until it catches signals itself: importing its parts takes seconds."""
    try:
        yield
    except KeyboardInterrupt:
        click.echo("stopped")
        sys.exit(0)


def settings_of(options: dict[str, Any]) -> Settings:
    """Return the settings of a command whose output a person reads: log lines begin at warning, if no level was
    chosen."""
    from lakerunner.services.logs import configure_logs

    reading = read_settings(os.environ, options)
    configure_logs(reading.settings.log_level if "log_level" in reading.sources else "warning")
    if reading.problems:
        raise WrongSettings(reading.problems)
    return reading.settings


def settings_to_run(options: dict[str, Any], parts: Collection[str], *, level: str = "info") -> Settings:
    """Return the settings of a process of these parts; WrongSettings, with all that is wrong, before anything of it is
    started or created. `level` is that of its logs, if no level was chosen."""
    from lakerunner.services.logs import configure_logs
    from lakerunner.services.preflight import check_settings

    reading = read_settings(os.environ, options)
    configure_logs(reading.settings.log_level if "log_level" in reading.sources else level)
    check_settings(reading, parts)
    return reading.settings
