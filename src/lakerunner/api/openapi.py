"""Build the OpenAPI 3.1 document of a process from the descriptions of its endpoints.

An endpoint is a route with one described operation per method, so that no method is served without a description. The
document is served as GET /openapi.json. Its examples are real: tests send them.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from importlib.metadata import version
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from lakerunner.api.schema import COUNT, Schema, record, text

Handler = Callable[[Request], Response | Awaitable[Response]]

JSON = "application/json"
ERROR_REF: Schema = {"$ref": "#/components/schemas/Error"}
_POSITION = {"type": "object", "properties": {"line": COUNT, "column": COUNT}, "required": ["line", "column"]}
_ERROR = record(
    "error",
    error=record(
        "kind? message position?",
        kind=text("UserError, NotAuthenticated, TooLarge, Unavailable, ..."),
        message=text("what is wrong, where, and what to do"),
        position={**_POSITION, "description": "position in the query, counted from 1"},
    ),
)
ERRORS = {
    400: "The request is invalid. The message says what is wrong, and where. Do not send it again unchanged.",
    401: "API key is missing, unknown or revoked.",
    403: "The key has no permission for this.",
    404: "Not found.",
    406: "None of the formats in Accept is supported.",
    409: "Conflict with another request, or it exists already.",
    413: "A limit is exceeded; the message names it.",
    415: "This content type or encoding is not supported.",
    422: "The data in the request cannot be read.",
    429: "Too many requests: send it again after Retry-After seconds.",
    500: "An internal error; the server's log has the details.",
    503: "A dependency is unavailable: send it again after Retry-After seconds.",
}
KEY, WORKER_KEY, OPEN = "key", "worker", ""
_SCHEMES: dict[str, dict[str, dict[str, str]]] = {
    KEY: {
        "bearer": {"type": "http", "scheme": "bearer", "description": "An API key (`lakerunner keys create NAME`)."},
        "basic": {"type": "http", "scheme": "basic", "description": "The API key as the password."},
        "x-api-key": {"type": "apiKey", "in": "header", "name": "x-api-key"},
        "api-key": {"type": "apiKey", "in": "header", "name": "api-key"},
        "x-cardinalhq-api-key": {"type": "apiKey", "in": "header", "name": "x-cardinalhq-api-key"},
    },
    WORKER_KEY: {
        "worker": {"type": "apiKey", "in": "header", "name": "x-lakerunner-worker-key"},
    },
    OPEN: {},
}


@dataclass(frozen=True)
class Body:
    """A request body of one media type."""

    schema: Schema = field(default_factory=dict)
    example: Any = None


@dataclass(frozen=True)
class Parameter:
    """A parameter of a request; `where` is query or path."""

    name: str
    where: str
    schema: Schema
    description: str
    example: str | None = None


@dataclass(frozen=True)
class Reply:
    """A response; `content` has its schema by media type, and is empty for a response without a body."""

    description: str
    content: Mapping[str, Schema] = field(default_factory=dict)


def json_reply(description: str, schema: Schema, status: int = 200) -> dict[int, Reply]:
    """Return the replies of an operation that answers with JSON."""
    return {status: Reply(description, {JSON: schema})}


@dataclass(frozen=True)
class Operation:
    """What one method of an endpoint does. `replies` are its successful responses by status; `errors` are the statuses
    of failures, whose bodies are `error_content`."""

    tag: str
    summary: str
    replies: Mapping[int, Reply]
    errors: tuple[int, ...] = (401, 403, 503)
    body: Mapping[str, Body] = field(default_factory=dict)
    parameters: tuple[Parameter, ...] = ()
    security: str = KEY
    description: str = ""
    error_content: Mapping[str, Schema] = field(default_factory=lambda: {JSON: ERROR_REF})


class Endpoint(Route):
    """A route with a description of its methods: Endpoint("/api/v1/things", self.list, GET=Operation(...))."""

    def __init__(self, path: str, handler: Handler, **operations: Operation) -> None:
        super().__init__(path, handler, methods=list(operations))
        self.operations = operations


def document(routes: Iterable[BaseRoute]) -> dict[str, Any]:
    """Return the OpenAPI document of those routes that are endpoints."""
    paths: dict[str, dict[str, Any]] = {}
    for route in routes:
        if isinstance(route, Endpoint):
            described = {method.lower(): _operation(route, method) for method in route.operations}
            paths.setdefault(route.path_format, {}).update(described)
    schemes = {name: scheme for group in _SCHEMES.values() for name, scheme in group.items()}
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Lakerunner",
            "version": version("lakerunner"),
            "description": "A telemetry lake. On loopback, a request without a key belongs to the default "
            "organization.",
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "paths": paths,
        "components": {"schemas": {"Error": _ERROR}, "securitySchemes": schemes},
    }


def _operation(route: Endpoint, method: str) -> dict[str, Any]:
    stated = route.operations[method]
    replies = {str(status): _reply(reply) for status, reply in stated.replies.items()}
    errors = {str(status): _error(status, stated) for status in sorted({*stated.errors, 500})}
    described: dict[str, Any] = {
        "operationId": f"{method.lower()}{route.path_format}".translate(str.maketrans("/-.", "___", "{}")),
        "tags": [stated.tag],
        "summary": stated.summary,
        "security": [{name: []} for name in _SCHEMES[stated.security]],
        "responses": errors | replies,
    }
    if stated.description:
        described["description"] = stated.description
    if stated.parameters:
        described["parameters"] = [_parameter(one) for one in stated.parameters]
    if stated.body:
        described["requestBody"] = {
            "required": True,
            "content": {media_type: _with_example(body) for media_type, body in stated.body.items()},
        }
    return described


def _reply(reply: Reply) -> dict[str, Any]:
    content = {media_type: {"schema": dict(schema)} for media_type, schema in reply.content.items()}
    return {"description": reply.description, **({"content": content} if content else {})}


def _error(status: int, stated: Operation) -> dict[str, Any]:
    return _reply(Reply(ERRORS[status], stated.error_content))


def _parameter(one: Parameter) -> dict[str, Any]:
    example = {} if one.example is None else {"example": one.example}
    return {
        "name": one.name,
        "in": one.where,
        "required": one.where == "path",
        "description": one.description,
        "schema": dict(one.schema),
        **example,
    }


def _with_example(body: Body) -> dict[str, Any]:
    return {"schema": dict(body.schema), **({} if body.example is None else {"example": body.example})}
