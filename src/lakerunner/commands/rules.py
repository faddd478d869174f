"""`lakerunner rules`: rules that make metrics of logs, spans and other metrics while these are ingested.

docs/formats/materialization.md describes them.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import click

from lakerunner.commands.options import organization_options, settings_of
from lakerunner.commands.rule_backfill import backfill_rule, coverage_text
from lakerunner.model.display import for_terminal
from lakerunner.model.errors import UserError

if TYPE_CHECKING:
    from lakerunner.model.metric_rules.metric_rule import MetricRule, RuleVersion
    from lakerunner.model.metric_rules.rule_changes import RuleChange

_COLUMNS = ("name", "version", "signal", "metric", "measure", "by", "state", "history")


@click.group()
def rules() -> None:
    """Manage rules. A rule makes a metric of the logs, spans or points that its selector chooses, at ingest.

    \b
    lakerunner rules presets                    ready-made rules: errors, log volume, span metrics
    lakerunner rules presets add log-errors     switch one on
    lakerunner rules add checkout-errors --signal logs --measure count --metric checkout_errors \\
        --select '{service_name="checkout"} |= "refused" | json' --by service_name,region
    lakerunner rules backfill log-errors --since 30d      cover stored data too
    lakerunner rules list                       all rules with their state, and how much they cover
    lakerunner rules apply rules.yaml           make the rules of a file the only ones
    """


rules.add_command(backfill_rule)


@rules.command("add")
@click.argument("name")
@click.option("--signal", type=click.Choice(["logs", "traces", "metrics"]), required=True, help="What the rule reads.")
@click.option(
    "--select",
    "selector",
    help="logs: a LogQL query of lines; traces and metrics: matchers. Required for logs; default: all, {}.",
)
@click.option(
    "--measure", required=True, help="count, bytes, errors, sum(FIELD) or histogram(FIELD); metrics: sum(value)."
)
@click.option("--metric", required=True, help="Name of the metric that the rule makes.")
@click.option("--by", multiple=True, metavar="LABEL[,LABEL]", help="Labels that the metric keeps; may be repeated.")
@click.option("--source-metric", default="", help="Metric that a rule over metrics reads.")
@click.option("--max-series", type=click.IntRange(1), help="Series after which the rule is paused; default: 10,000.")
@click.option("--description", default="", help="What the metric is for.")
@click.option("--disabled", is_flag=True, help="Store the rule without switching it on.")
@click.option(
    "--since", metavar="TIME", help="Cover stored data too, from this time on: a date and time, or an age: 30d."
)
@organization_options
def add_rule(org: str, home: Path | None, **given: Any) -> None:
    """Add the rule NAME, or replace it: another selector, measure, metric or labels make a new version of it.

    \b
    Errors of one service by region, which is a field of its JSON lines:
      lakerunner rules add checkout-errors --signal logs --measure count --metric checkout_errors \\
          --select '{service_name="checkout"} | json | level="error"' --by region
    Bytes sent, from the field `size` ("12kB") of logfmt lines:
      lakerunner rules add sent --signal logs --measure 'sum(bytes(size))' --metric sent_bytes \\
          --select '{service_name="proxy"} | logfmt' --by service_name
    Duration of the calls that services answer:
      lakerunner rules add served --signal traces --measure 'histogram(duration)' --metric served_duration \\
          --select '{kind="Server"}' --by service_name,name
    A metric without its labels for pods:
      lakerunner rules add requests --signal metrics --source-metric http.requests --measure 'sum(value)' \\
          --metric requests_by_service --by service_name
    """
    if given["selector"] is None and given["signal"] == "logs":
        raise click.UsageError("a rule over logs needs --select, for example '{service_name=\"cart\"}'")
    from lakerunner.model.metric_rules.metric_rule import MetricRule

    since = given.pop("since")
    dimensions = [name.strip() for part in given.pop("by") for name in part.split(",") if name.strip()]
    chosen = {"selector": "{}"} | {name: value for name, value in given.items() if value is not None}
    enabled = {"enabled": not chosen.pop("disabled")}
    rule = MetricRule.from_json(chosen | enabled | {"dimensions": dimensions})
    _put([rule], org, home, since)


def _put(added: Sequence[MetricRule], org: str, home: Path | None, since: str | None = None) -> None:
    from lakerunner.services.ground import administered, now_ns, organization
    from lakerunner.services.metric_rules import CheckedRules, history_since

    now = now_ns()
    for rule in added:
        if since:
            history_since(rule, since, now)  # refused before anything is stored
    with administered(settings_of({"home": home}), create=True) as index:
        whose = organization(index, org).id
        for rule in added:
            checked = CheckedRules(index.metric_rules)
            stored = checked.put(whose, rule)
            if since:
                stored = checked.set_since(whose, rule.name, since, now)
            click.echo(f"{rule.name} v{stored.version}: {stored.state}")


@rules.command("list")
@organization_options
def list_rules(org: str, home: Path | None) -> None:
    """List all rules with their version and state, and how much of the stored data they cover."""
    from lakerunner.commands.terminal.show import show_rows
    from lakerunner.services.ground import inspected, organization

    with inspected(settings_of({"home": home})) as index:
        whose = organization(index, org).id
        stored, coverage = index.metric_rules.current(whose), index.rule_history.coverage(whose)
    show_rows(_COLUMNS, [_row(one) | {"history": coverage_text(one, coverage)} for one in stored], sys.stdout)
    if not stored:
        click.echo(f"{org} has no rules: `lakerunner rules presets` lists ready-made ones", err=True)


def _row(one: RuleVersion) -> dict[str, Any]:
    rule = one.rule
    return {
        "name": rule.name,
        "version": one.version,
        "signal": rule.signal,
        "metric": rule.metric,
        "measure": str(rule.measure),
        "by": ", ".join(rule.dimensions),
        "state": one.state,
    }


@rules.command("show")
@click.argument("name", required=False)
@click.option("--json", "as_json", is_flag=True, help="JSON instead of YAML.")
@organization_options
def show_rule(name: str | None, as_json: bool, org: str, home: Path | None) -> None:
    """Print the rule NAME, or all rules, as a file that `apply` reads."""
    from lakerunner.commands.terminal.show import show_document
    from lakerunner.services.ground import inspected, organization
    from lakerunner.services.rule_file import write_rule_file

    with inspected(settings_of({"home": home})) as index:
        whose = organization(index, org).id
        stored = [index.metric_rules.find(whose, name)] if name else index.metric_rules.current(whose)
        coverage = index.rule_history.coverage(whose)
    shown = [one.rule for one in stored]
    if as_json:
        show_document({"rules": [rule.to_json() for rule in shown]}, sys.stdout)
    else:
        covering = [(one.rule.name, coverage_text(one, coverage)) for one in stored]
        comments = "".join(f"# {of} {text}\n" for of, text in covering if text)
        click.echo(for_terminal(comments + write_rule_file(shown), sys.stdout), nl=False)


@rules.command("enable")
@click.argument("name")
@organization_options
def enable_rule(name: str, org: str, home: Path | None) -> None:
    """Switch the rule NAME on; one that was paused goes on."""
    _enable(name, org, home, enabled=True)


@rules.command("disable")
@click.argument("name")
@organization_options
def disable_rule(name: str, org: str, home: Path | None) -> None:
    """Switch the rule NAME off, and keep it. Queries read the rows of the time that it misses."""
    _enable(name, org, home, enabled=False)


def _enable(name: str, org: str, home: Path | None, *, enabled: bool) -> None:
    from lakerunner.services.ground import administered, organization

    with administered(settings_of({"home": home})) as index:
        index.metric_rules.set_enabled(organization(index, org).id, name, enabled)


@rules.command("drop")
@click.argument("name")
@organization_options
def drop_rule(name: str, org: str, home: Path | None) -> None:
    """Drop the rule NAME. Its metric ends, and queries read rows instead at once."""
    from lakerunner.services.ground import administered, organization

    with administered(settings_of({"home": home})) as index:
        index.metric_rules.drop(organization(index, org).id, name)


@rules.command("apply")
@click.argument("file", type=click.File("r", encoding="utf-8"))
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
@click.option("--dry-run", is_flag=True, help="Show the difference, and change nothing.")
@organization_options
def apply_rules(file: IO[str], yes: bool, dry_run: bool, org: str, home: Path | None) -> None:
    """Make the rules of the YAML file FILE the rules of the organization, and drop all others; - is standard input.

    Shows the difference first, and on a terminal asks for confirmation. Applying a file twice changes nothing.

    \b
    rules:
      - name: checkout-errors
        signal: logs
        selector: '{service_name="checkout"} | json | level="error"'
        measure: count
        metric: checkout_errors
        dimensions: [service_name, region]
    """
    from lakerunner.services.ground import administered, organization
    from lakerunner.services.metric_rules import CheckedRules
    from lakerunner.services.rule_file import FILE_MAX, read_rule_file

    try:
        given = read_rule_file(file.read(FILE_MAX + 1))
    except UnicodeDecodeError as error:
        raise UserError(f"the file of rules is not UTF-8 text: {error}") from error
    with administered(settings_of({"home": home}), create=not dry_run) as index:
        whose, checked = organization(index, org).id, CheckedRules(index.metric_rules)
        planned = checked.plan(whose, given)
        _show_changes(planned)
        if dry_run or not planned:
            return
        if not yes and sys.stdin.isatty():
            click.confirm(f"Apply to {org}?", abort=True)
        applied = checked.apply(whose, given)
        if applied != planned:
            click.echo("the rules were changed meanwhile; applied:", err=True)
            _show_changes(applied)


def _show_changes(changes: Sequence[RuleChange]) -> None:
    for one in changes:
        click.echo(str(one))
    if not changes:
        click.echo("no changes")


@rules.group(invoke_without_command=True)
@click.pass_context
def presets(context: click.Context) -> None:
    """Print the ready-made rules; `presets add NAME...` switches some of them on."""
    from lakerunner.commands.terminal.show import show_rows
    from lakerunner.services.rule_presets import presets as ready_made

    if context.invoked_subcommand is None:
        columns = ("name", "signal", "metric", "measure", "by", "description")
        rows = [
            {name: getattr(rule, name) for name in ("name", "signal", "metric", "description")}
            | {"measure": str(rule.measure), "by": ", ".join(rule.dimensions)}
            for rule in ready_made()
        ]
        show_rows(columns, rows, sys.stdout)


@presets.command("add")
@click.argument("names", nargs=-1, required=True, metavar="NAME...")
@click.option("--disabled", is_flag=True, help="Store the rules without switching them on.")
@organization_options
def add_presets(names: tuple[str, ...], disabled: bool, org: str, home: Path | None) -> None:
    """Add the ready-made rules with these names; they can be changed like any other."""
    from lakerunner.services.rule_presets import presets as ready_made

    _put([replace(rule, enabled=not disabled) for rule in ready_made(names)], org, home)
