"""Values of settings: a name, a value and its origin; how it is parsed, what is wrong with it, and how it is shown.

This module does not know which settings there are (settings.py does).
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from lakerunner.model.errors import UserError
from lakerunner.model.setting_check import Check
from lakerunner.model.source import Routes

MASK = "****"
_SECRET_NAME = re.compile(r"key|secret|token|password|credential|signature|(?:^|_)sas(?:_|$)", re.IGNORECASE)
_PUBLIC_NAMES = frozenset({"key_cache_seconds", "key_cache_away_seconds", "tls_key"})  # tls_key is a path
_PASSWORD_IN_URL = re.compile(r"(?<=://)([^/@:\s]*):\S*@")  # up to the last @: a password may hold any character
_PASSWORD_IN_TEXT = re.compile(r"((?:password|secret|token|sig)\s*=\s*)('[^']*'|[^\s&]+)", re.IGNORECASE)


@dataclass(frozen=True)
class Problem:
    """One wrong setting: its name, its value as it may be shown, where it comes from, what is wrong and what to do."""

    name: str
    value: str
    source: str
    reason: str

    def __str__(self) -> str:
        return f"{self.name} = {self.value!r} ({self.source}) {self.reason}"


@dataclass(frozen=True)
class SettingValue:
    """A value as it was given, and where it comes from."""

    name: str
    value: Any
    source: str

    def problem(self, reason: str) -> Problem:
        return Problem(self.name, mask_secrets(self.name, self.value), self.source, reason)


class WrongSettings(UserError):
    """Settings that cannot be used, all of them in one message."""

    exit_code = 2

    def __init__(self, problems: tuple[Problem, ...]) -> None:
        count = f"{len(problems)} settings are invalid" if len(problems) > 1 else "a setting is invalid"
        super().__init__("\n  ".join((f"{count}:", *map(str, problems))))
        self.problems = problems


def parse_setting(value: Any, default: Any, check: Check) -> tuple[str, Any]:
    """Return what is wrong with a value, or "" and the value in the type of the default."""
    try:
        typed = _typed(value, default)
    except UserError as error:
        return f"cannot be used: {error}", None
    except (TypeError, ValueError, AttributeError):
        return f"is not {_kind(default)}", None
    return check(typed), typed


def explain_unknown(name: str, known: Collection[str]) -> str:
    """Return what is wrong with an unknown name, with the known name that it is close to."""
    near = get_close_matches(name, known, n=1)
    return f"is unknown: did you mean {near[0]}?" if near else "is unknown: `lakerunner settings` lists all names"


def mask_secrets(name: str, value: Any) -> str:
    """Return the value as people may see it: passwords and keys are masked."""
    if isinstance(value, Mapping):
        return ",".join(f"{key}={mask_secrets(key, one)}" for key, one in value.items())
    text = str(value)
    if text and name not in _PUBLIC_NAMES and _SECRET_NAME.search(name):
        return MASK
    return _PASSWORD_IN_TEXT.sub(rf"\g<1>{MASK}", _PASSWORD_IN_URL.sub(rf"\g<1>:{MASK}@", text))


def _kind(default: Any) -> str:
    match default:
        case bool():
            return "true or false"
        case int():
            return "a whole number"
        case float():
            return "a number"
        case dict():
            return "a list of pairs: write name=value,name=value"
        case _:
            return "text"


def _typed(value: Any, default: Any) -> Any:
    if isinstance(default, Routes):
        return _routes(value)
    if isinstance(default, dict):
        return _pairs(value) if isinstance(value, str) else {key: str(one) for key, one in value.items()}
    if isinstance(default, bool):
        return _flag(value)
    if isinstance(default, str) and not isinstance(value, str):
        raise TypeError
    return Path(value).expanduser() if isinstance(default, Path) else type(default)(value)


def _flag(value: Any) -> bool:
    if isinstance(value, str) and value.lower() in ("true", "false"):
        return value.lower() == "true"
    if not isinstance(value, bool):
        raise TypeError
    return value


def _routes(value: Any) -> Routes:
    """Parse the tables of the config file, or their JSON."""
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except json.JSONDecodeError as error:
            raise UserError(f"not JSON: {error}") from error
    return Routes.parse(value)


def _pairs(text: str) -> dict[str, str]:
    """Parse `a=1,b=2` to a dict."""
    return dict(part.split("=", 1) for part in text.split(",") if part)
