"""Files of rules: YAML with a list of rules under `rules:`, which is applied as a whole.

Comes in: the text of a file, which may be anything. Goes out: rules, or a UserError with the line; and rules as YAML
again. What always holds: reading what was written gives the same rules; a file that fits the limit is read in bounded
time and memory, since aliases share one value and depth is limited.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import yaml

from lakerunner.model.errors import Position, TooLarge, UserError
from lakerunner.model.metric_rules.metric_rule import MetricRule

FILE_MAX = 1 << 20  # characters
_DEFAULTS = {"source_metric": "", "description": "", "enabled": True}  # that a file need not repeat


class _Loader(yaml.SafeLoader):  # type: ignore[misc]
    """The safe loader, which refuses a key that appears twice instead of forgetting the first value."""

    def compose_mapping_node(self, anchor: Any) -> Any:
        node = super().compose_mapping_node(anchor)
        names = [key.value for key, _ in node.value if isinstance(key, yaml.ScalarNode)]
        if len(set(names)) < len(names):
            problem = "a key appears twice in this mapping"
            raise yaml.constructor.ConstructorError(None, None, problem, node.start_mark)
        return node


class _Dumper(yaml.SafeDumper):  # type: ignore[misc]
    """Writes texts of several lines as blocks."""


def _write_text(dumper: yaml.SafeDumper, text: str) -> Any:
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style="|" if "\n" in text else None)


_Dumper.add_representer(str, _write_text)


def read_rule_file(text: str) -> list[MetricRule]:
    """Read the rules of a file. UserError with the line of the rule, or of the first sign that is not YAML."""
    if len(text) > FILE_MAX:
        raise TooLarge(f"the file of rules has {len(text)} characters; the limit is {FILE_MAX}")
    try:
        loader = _Loader(text)
        try:
            return [_read_rule(loader, node) for node in _rule_nodes(loader.get_single_node())]
        finally:
            loader.dispose()
    except yaml.MarkedYAMLError as error:
        where = _position(error.problem_mark) if error.problem_mark else None
        raise UserError(f"the file of rules is not YAML: {error.problem or error.context}", where) from error
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise UserError(f"the file of rules is not YAML: {' '.join(str(error).split())[:200]}") from error


def _rule_nodes(root: Any) -> list[Any]:
    pairs = root.value if isinstance(root, yaml.MappingNode) else []
    if len(pairs) != 1 or pairs[0][0].value != "rules" or not isinstance(pairs[0][1], yaml.SequenceNode):
        raise UserError("a file of rules has one key, `rules`, with a list of rules; an empty list drops all rules")
    nodes: list[Any] = pairs[0][1].value
    return nodes


def _read_rule(loader: _Loader, node: Any) -> MetricRule:
    where = _position(node.start_mark)
    one = loader.construct_document(node)
    if not isinstance(one, Mapping) or not all(isinstance(key, str) for key in one):
        raise UserError("a rule is a mapping of names to values", where)
    try:
        return MetricRule.from_json(one)
    except UserError as error:
        raise UserError(f"rule {str(one.get('name', ''))[:64]!r}: {error.message}", where) from error


def _position(mark: Any) -> Position:
    return Position(mark.line + 1, mark.column + 1)


def write_rule_file(rules: Iterable[MetricRule]) -> str:
    """Write these rules as a file that `read_rule_file` reads."""
    shown = [{name: value for name, value in rule.to_json().items() if _DEFAULTS.get(name) != value} for rule in rules]
    written: str = yaml.dump({"rules": shown}, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=1000)
    return written
