"""`lakerunner demo`: run everything in one process, with generated telemetry of a shop."""

from __future__ import annotations

import sys
from importlib.util import find_spec
from typing import Any

import click

from lakerunner.commands.options import EPILOG
from lakerunner.commands.up import process_options, settings_to_run
from lakerunner.model.errors import UserError


@click.command(epilog=EPILOG)
@process_options
@click.option(
    "--once",
    is_flag=True,
    help="Ingest, ask the example questions, compare the answers with the generated data, exit with 0 if all match.",
)
@click.option(
    "--minutes",
    type=click.IntRange(1, 24 * 60),
    default=60,
    show_default=True,
    help="Minutes of telemetry to generate at the start.",
)
@click.option(
    "--rate",
    type=click.FloatRange(0.1, 1000),
    default=5.0,
    show_default=True,
    help="Requests per second that the shop serves.",
)
@click.option(
    "--seed",
    type=int,
    default=1,
    show_default=True,
    help="Seed of the random numbers: the same seed generates the same telemetry.",
)
def demo(once: bool, minutes: int, rate: float, seed: int, **options: Any) -> None:
    """Run `up` with generated telemetry of a shop: ten services, one incident, example questions with answers."""
    if find_spec("lakerunner_demo") is None:
        raise UserError("the demo shop is not installed: run `pip install 'lakerunner[demo]'`")
    from lakerunner.commands.terminal.screen import TerminalScreen
    from lakerunner.services.run import UP, run_parts
    from lakerunner_demo.run import Demo

    shop = Demo(seed=seed, rate=rate, minutes=minutes, once=once)
    sys.exit(run_parts(settings_to_run(options, UP, level="warning"), UP, TerminalScreen(sys.stdout), shop.run))
