"""`lakerunner settings`: the values of settings and where each comes from, without secrets."""

from __future__ import annotations

import json
import os
import sys

import click

from lakerunner.commands.options import home_option
from lakerunner.model.setting_value import mask_secrets
from lakerunner.settings import LoadedSettings, default_of, describe_setting, read_settings, setting_names, variable_of


@click.command("settings")
@click.argument("name", required=False)
@home_option
@click.option(
    "--json", "as_json", is_flag=True, help="One JSON object: value, default, source and description by name."
)
def settings(name: str | None, home: str | None, as_json: bool) -> None:
    """Show the value of every setting and where it comes from; with NAME, explain one.

    A setting is read from the TOML file that LAKERUNNER_CONFIG names, then from the environment variable
    LAKERUNNER_<NAME>, then from an option such as --home; the last one wins. Passwords and keys are masked.

    \b
    lakerunner settings                     all of them
    lakerunner settings query_memory        what it means, its default, how to set it
    lakerunner settings --json | jq 'map_values(select(.source != "default"))'

    \b
    Exit codes: 0 all values are valid, 2 some are not: they are listed on standard error.
    """
    reading = read_settings(os.environ, {"home": home})
    if name is not None:
        name = name.lower().removeprefix("lakerunner_")
    chosen = setting_names() if name is None else [name]
    found = {one: _setting_json(reading, one) for one in chosen}
    if as_json:
        click.echo(json.dumps(found, indent=2))
    elif name is None:
        _show_all(found)
    else:
        _show_one(name, found[name])
    if reading.problems:
        for problem in reading.problems:
            click.echo(f"error: {problem}", err=True)
        sys.exit(2)


def _setting_json(reading: LoadedSettings, name: str) -> dict[str, str]:
    return {
        "description": describe_setting(name),
        "value": mask_secrets(name, getattr(reading.settings, name)),
        "default": mask_secrets(name, default_of(name)),
        "source": reading.source(name),
    }


def _show_all(found: dict[str, dict[str, str]]) -> None:
    width = max(map(len, found))
    values = min(32, max(len(one["value"]) for one in found.values()))
    for name, one in found.items():
        click.echo(f"{name:{width}}  {one['value'] or '-':{values}}  {one['source']}")
    click.echo("\n`lakerunner settings NAME` explains one.")


def _show_one(name: str, one: dict[str, str]) -> None:
    click.echo(f"{name}: {one['description']}\n")
    rows = {
        "value": one["value"] or "(empty)",
        "source": one["source"],
        "default": one["default"] or "(empty)",
        "set it with": f"{variable_of(name)}=..., or {name} = ... in the file of LAKERUNNER_CONFIG",
    }
    for label, text in rows.items():
        click.echo(f"  {label:12} {text}")
