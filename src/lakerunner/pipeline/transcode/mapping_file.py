"""The mapping file: TOML that names columns where guessing does not do.

    ["otel-raw/acme/edge/".logs]        the prefix of raw keys, and the signal
    timestamp = "when"                  a field, and the column that holds it
    timestamp_unit = "ms"               s, ms, us or ns, of a time that is a number

Comes in: its path. Goes out: Mappings, a plain value that travels to the tasks. It is read once, at start; whatever is
wrong in it is refused there with file, section and key.
"""

from __future__ import annotations

import tomllib
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from lakerunner.model.errors import UserError
from lakerunner.pipeline.transcode.columns import GUESSES, TIMES, Columns, Mappings, fields_of
from lakerunner.pipeline.transcode.times import UNITS

_UNIT = "_unit"


def read_mapping_file(path: str) -> Mappings:
    """What the file says; an empty path says nothing."""
    if not path:
        return Mappings()
    try:
        text = Path(path).expanduser().read_text()
    except OSError as error:
        raise UserError(f"cannot read mapping file {path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise UserError(f"mapping file {path} is not UTF-8: byte {error.start}") from error
    return parse_mappings(text, path)


def parse_mappings(text: str, name: str) -> Mappings:
    """The mappings of this text; `name` is what errors call it."""
    try:
        sections = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise UserError(f"mapping file {name} is not TOML: {error}") from error
    found = []
    for prefix, signals in sections.items():
        if not isinstance(signals, dict) or prefix in GUESSES:
            raise UserError(f'mapping file {name}, {prefix}: write a section as ["prefix of raw keys".logs]')
        for signal, entries in signals.items():
            where = f"mapping file {name}, section [{prefix!r}.{signal}]"
            if signal not in GUESSES or not isinstance(entries, dict):
                raise UserError(f"{where}: a section must end in one of {', '.join(GUESSES)}")
            found.append((prefix, signal, _columns(entries, signal, where)))
    return Mappings(tuple(found))


def _columns(entries: dict[str, Any], signal: str, where: str) -> Columns:
    fields = fields_of(signal)
    units = {f"{field}{_UNIT}": field for field in fields if field in TIMES}
    for key, value in entries.items():
        if key not in fields and key not in units:
            near = get_close_matches(key, (*fields, *units), n=1)
            hint = f"did you mean {near[0]}?" if near else f"known keys: {', '.join((*fields, *units))}"
            raise UserError(f"{where}: unknown key {key}: {hint}")
        if not isinstance(value, str) or not value:
            raise UserError(f"{where}: {key} = {value!r} is not text")
        if key in units and value not in UNITS:
            raise UserError(f"{where}: {key} = {value!r} is not one of {', '.join(UNITS)}")
    names = {key: value for key, value in entries.items() if key in fields}
    twice = sorted(column for column in set(names.values()) if list(names.values()).count(column) > 1)
    if twice:
        fields_of_it = " and ".join(key for key, column in names.items() if column == twice[0])
        raise UserError(f"{where}: {fields_of_it} name the same column {twice[0]!r}")
    return Columns(names, {field: entries[key] for key, field in units.items() if key in entries})
