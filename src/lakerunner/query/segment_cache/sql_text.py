"""Names and values as DuckDB's SQL writes them."""

from __future__ import annotations


def quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def text(value: str) -> str:
    return "'" + value.replace("'", "''") + "'"


def blob(value: bytes) -> str:
    return "'" + "".join(f"\\x{byte:02X}" for byte in value) + "'::BLOB"
