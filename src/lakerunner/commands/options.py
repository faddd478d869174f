"""Options that commands share, and settings from the environment and from options.

`lakerunner --help` imports all commands, so a command imports at its top only what is fast to import, and the rest when
it runs.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

import click

from lakerunner.model.errors import UserError
from lakerunner.model.setting_value import WrongSettings
from lakerunner.settings import Settings, read_settings

if TYPE_CHECKING:
    from lakerunner.commands.terminal.client import Client

EPILOG = "Set any setting as LAKERUNNER_<NAME>; `lakerunner settings` shows the values in force and their sources."
home_option = click.option(
    "--home",
    type=click.Path(path_type=Path),
    help="Directory of the lake's data; default: LAKERUNNER_HOME, or .lakerunner in the current directory.",
)
store_option = click.option(
    "--store", metavar="URL", help="Object store: a file, s3, gs or az URL; default: LAKERUNNER_STORE, or HOME/store."
)
url_option = click.option("--url", help="Base URL of the API; default: the one in HOME/address.")
key_option = click.option("--key", envvar="LAKERUNNER_API_KEY", help="API key, if the API requires one.")


def connection_options(run: Callable[..., None]) -> Callable[..., None]:
    """Add the options that name a running lake to a command, which passes them to `client_of`."""
    return home_option(url_option(key_option(run)))


def organization_options(run: Callable[..., None]) -> Callable[..., None]:
    """Add the options that name an organization of a lake."""
    org = click.option("--org", default="default", show_default=True, help="Organization, by id or name.")
    return org(home_option(run))


partial_option = click.option(
    "--partial", is_flag=True, help="Answer with the data that can be read, list what cannot be read, and exit with 3."
)
engine_option = click.option(
    "--engine",
    type=click.Choice(["duckdb", "spark"]),
    default="duckdb",
    show_default=True,
    help="What runs the query. spark starts processes of its own, which takes seconds.",
)
format_option = click.option(
    "--format", "form", type=click.Choice(["table", "json"]), default="table", show_default=True
)
json_option = click.option("--json", "json", is_flag=True, help="One JSON object.")


def query_text(query: str | None, file: TextIO | None = None) -> str | None:
    """Return the query from QUERY, --file or standard input; None if it comes from a prompt."""
    if query is not None and file is not None:
        raise click.UsageError("QUERY and --file are both given: give only one of them")
    if query is None and file is None:
        if not sys.stdin.isatty():
            raise click.UsageError("no query: give QUERY, or `-` to read it from standard input, or --file")
        return None
    try:
        text = file.read() if file is not None else sys.stdin.read() if query == "-" else query or ""
        text.encode()  # fails for lone surrogates: bytes that the locale could not decode
    except UnicodeError:
        remedy = "set LC_ALL to a UTF-8 locale such as C.UTF-8, or use --file"
        raise UserError(f"the query is not UTF-8 text: {remedy}") from None
    return text


def client_of(options: Mapping[str, Any]) -> Client:
    """Return the client of the lake that the options of `connection_options` name."""
    from lakerunner.commands.terminal.client import Client

    return Client.find(settings_of({"home": options.get("home")}), options.get("url"), options.get("key"))


def settings_of(options: dict[str, Any]) -> Settings:
    """Return the settings of a command whose output a person reads: the default log level is warning."""
    from lakerunner.services.logs import configure_logs

    reading = read_settings(os.environ, options)
    configure_logs(reading.settings.log_level if "log_level" in reading.sources else "warning")
    if reading.problems:
        raise WrongSettings(reading.problems)
    return reading.settings
