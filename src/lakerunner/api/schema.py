"""JSON Schemas of bodies and answers, written shortly: what descriptions of endpoints (api/openapi.py) are made of."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

Schema = Mapping[str, Any]
ANY: Schema = {}
TEXT: Schema = {"type": "string"}
BOOLEAN: Schema = {"type": "boolean"}
COUNT: Schema = {"type": "integer", "minimum": 0}
TIME: Schema = {"type": "string", "format": "date-time"}
OBJECT: Schema = {"type": "object"}


def text(description: str) -> Schema:
    """Return the schema of a text, with what it means."""
    return {**TEXT, "description": description}


def flag(description: str) -> Schema:
    return {**BOOLEAN, "description": description}


def one_of(values: Iterable[str], **more: Any) -> Schema:
    """Return the schema of a text that has one of these values."""
    return {**TEXT, "enum": list(values), **more}


def array(items: Schema, **more: Any) -> Schema:
    return {"type": "array", "items": items, **more}


def record(names: str, /, **schemas: Schema) -> Schema:
    """Return the schema of an object with these fields: `?` after a name means that it may be missing, and a field
    without a schema is a text."""
    fields = {name.rstrip("?"): not name.endswith("?") for name in names.split()}
    if unknown := schemas.keys() - fields.keys():
        raise TypeError(f"no field {unknown}")
    required = [name for name, always in fields.items() if always]
    properties = {name: schemas.get(name, TEXT) for name in fields}
    return {"type": "object", **({"required": required} if required else {}), "properties": properties}


def closed(schema: Schema) -> Schema:
    """Return the schema of an object that may have no further fields."""
    head = {name: schema[name] for name in schema if name != "properties"}
    return {**head, "additionalProperties": False, "properties": schema["properties"]}
