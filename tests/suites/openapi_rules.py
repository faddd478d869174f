"""The rules of OpenAPI 3.1 that a document of ours can break, and those of JSON Schema that it uses."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

METHODS = {"get", "put", "post", "delete", "options", "head", "patch", "trace"}
OPERATION_FIELDS = {
    "tags",
    "summary",
    "description",
    "operationId",
    "parameters",
    "requestBody",
    "responses",
    "deprecated",
    "security",
}
SCHEMA_WORDS = {
    "$ref",
    "type",
    "enum",
    "properties",
    "required",
    "items",
    "additionalProperties",
    "oneOf",
    "minimum",
    "maximum",
    "format",
    "default",
    "description",
}
TYPES: dict[str, Any] = {
    "object": dict,
    "array": list,
    "string": str,
    "boolean": bool,
    "integer": int,
    "number": (int, float),
    "null": type(None),
}


def broken_rules(document: dict[str, Any]) -> list[str]:
    """What is wrong with the document, in words."""
    found = []
    if not re.fullmatch(r"3\.1\.\d+", document["openapi"]):
        found.append(f"version {document['openapi']}")
    found += [f"info lacks {name}" for name in ("title", "version") if not document["info"].get(name)]
    ids = [operation.get("operationId") for _, _, operation in operations(document)]
    found += [f"operationId {one} twice" for one in set(ids) if ids.count(one) > 1]
    for path, item in document["paths"].items():
        found += [f"{path}: {method} is no method" for method in item if method not in METHODS]
        if not path.startswith("/"):
            found.append(f"{path} does not begin with /")
    for path, method, operation in operations(document):
        found += [f"{method} {path}: {problem}" for problem in _operation_problems(document, path, operation)]
    return found


def operations(document: dict[str, Any]) -> Iterator[tuple[str, str, dict[str, Any]]]:
    for path, item in document["paths"].items():
        for method, operation in item.items():
            yield path, method, operation


def _operation_problems(document: dict[str, Any], path: str, operation: dict[str, Any]) -> Iterator[str]:
    yield from (f"unknown field {name}" for name in set(operation) - OPERATION_FIELDS)
    yield from (f"no {name}" for name in ("operationId", "summary", "responses") if not operation.get(name))
    parameters = operation.get("parameters", [])
    in_path = {one["name"] for one in parameters if one["in"] == "path"}
    if in_path != set(re.findall(r"\{(\w+)\}", path)):
        yield f"path parameters {in_path}"
    for one in parameters:
        if one["in"] not in ("query", "path", "header", "cookie") or (one["in"] == "path" and not one["required"]):
            yield f"parameter {one['name']} is wrongly placed"
        yield from _schema_problems(document, one["schema"])
    for status, reply in operation["responses"].items():
        if not re.fullmatch(r"[1-5]\d\d|default", status) or not reply.get("description"):
            yield f"response {status}"
        yield from _content_problems(document, reply.get("content", {}))
    if "requestBody" in operation:
        yield from _content_problems(document, operation["requestBody"]["content"])
    known = document["components"]["securitySchemes"]
    yield from (f"security {name}" for one in operation.get("security", []) for name in one if name not in known)


def _content_problems(document: dict[str, Any], content: dict[str, Any]) -> Iterator[str]:
    for media_type, given in content.items():
        if "/" not in media_type:
            yield f"{media_type} is no media type"
        yield from _schema_problems(document, given["schema"])
        if "example" in given:
            yield from mismatches(document, given["schema"], given["example"])


def _schema_problems(document: dict[str, Any], schema: dict[str, Any]) -> Iterator[str]:
    yield from (f"unknown word {word}" for word in set(schema) - SCHEMA_WORDS)
    if "$ref" in schema:
        resolved(document, schema)
    yield from (f"no type {kind}" for kind in _kinds(schema) if kind not in TYPES)
    yield from (f"required {name}" for name in schema.get("required", []) if name not in schema["properties"])
    within = [*schema.get("properties", {}).values(), *schema.get("oneOf", [])]
    within += [schema["items"]] if "items" in schema else []
    for inner in within:
        yield from _schema_problems(document, inner)


def resolved(document: dict[str, Any], schema: dict[str, Any]) -> dict[str, Any]:
    """The schema itself; KeyError for a reference to nothing."""
    found: Any = schema
    if "$ref" in schema:
        found = document
        for part in schema["$ref"].removeprefix("#/").split("/"):
            found = found[part]
    return dict(found)


def _kinds(schema: dict[str, Any]) -> list[str]:
    kinds = schema.get("type", [])
    return [kinds] if isinstance(kinds, str) else kinds


def mismatches(document: dict[str, Any], schema: dict[str, Any], value: Any, at: str = "") -> Iterator[str]:
    """Where the value is not what the schema says."""
    schema = resolved(document, schema)
    kinds = _kinds(schema)
    if kinds and not any(_is(kind, value) for kind in kinds):
        yield f"{at}: {value!r} is not {kinds}"
        return
    if "enum" in schema and value not in schema["enum"]:
        yield f"{at}: {value!r} is none of {schema['enum']}"
    if "minimum" in schema and value < schema["minimum"]:
        yield f"{at}: {value} is below {schema['minimum']}"
    if "oneOf" in schema and sum(not list(mismatches(document, one, value)) for one in schema["oneOf"]) != 1:
        yield f"{at}: not one of its forms"
    if isinstance(value, dict):
        yield from (f"{at}: no {name}" for name in schema.get("required", []) if name not in value)
        for name, inner in value.items():
            allowed = schema.get("properties", {}).get(name, schema.get("additionalProperties", True))
            if allowed is False:
                yield f"{at}: {name} is not allowed"
            elif allowed is not True:
                yield from mismatches(document, allowed, inner, f"{at}.{name}")
    if isinstance(value, list) and "items" in schema:
        for number, inner in enumerate(value):
            yield from mismatches(document, schema["items"], inner, f"{at}[{number}]")


def _is(kind: str, value: Any) -> bool:
    return isinstance(value, TYPES[kind]) and not (kind in ("integer", "number") and isinstance(value, bool))
