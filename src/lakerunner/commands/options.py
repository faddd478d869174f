"""What commands share: their options, and settings from the environment and from these."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import click

from lakerunner.settings import Settings, load_settings

EPILOG = "Settings come from LAKERUNNER_* variables and LAKERUNNER_CONFIG; `lakerunner settings` lists them."
home = click.option("--home", type=click.Path(path_type=Path), help="Where the embedded parts keep their state.")
store = click.option("--store", metavar="URL", help="Object store: file, s3, gs or az URL; default HOME/store.")


def settings_of(options: dict[str, Any], *, service: bool = False) -> Settings:
    """Unless it is of a service, a person reads the output: log lines begin at warning, if no level was chosen."""
    from lakerunner.services.logs import configure_logs

    settings = load_settings(os.environ, options)
    unchosen = settings.log_level == Settings().log_level
    configure_logs("warning" if unchosen and not service else settings.log_level)
    return settings
