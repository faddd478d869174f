"""Regular expressions of matchers and of label_replace()."""

from __future__ import annotations

import re
from functools import lru_cache

from lakerunner.model.errors import UserError


@lru_cache(1024)
def compiled(pattern: str) -> re.Pattern[str]:
    """To be used with `fullmatch`. A dot matches a line break, too."""
    try:
        return re.compile(pattern, re.DOTALL)
    except re.error as error:
        raise UserError(f"invalid regular expression {pattern!r}: {error}") from error
