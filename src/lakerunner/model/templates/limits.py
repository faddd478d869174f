"""How much one rendering of a template may do: a template runs for every line, and its author may be a stranger.

Go bounds neither; a template beyond a limit is refused as a whole, not marked on each line, since each line would take
as long.
"""

from __future__ import annotations

from lakerunner.model.errors import TooLarge

# Steps of loops and of templates that call templates: nodes of the body for each turn, and a step for every
# BYTES_PER_STEP of text given to a function in it. About 0.1 s; a template without loops takes no steps.
MAX_STEPS = 100_000
BYTES_PER_STEP = 32
# Characters of the whole output, and of any text on the way: above the longest line that people push (a few hundred
# KiB), and a thousand such texts still fit into memory.
MAX_CHARACTERS = 4 << 20
MAX_DEPTH = 100  # of templates that call templates, and of blocks and parentheses: Python's stack is short


def too_long(count: int) -> TooLarge:
    return TooLarge(f"a template makes a text of more than {MAX_CHARACTERS} characters ({count}): make it shorter")


def check_length(count: int) -> None:
    """Refuse a text before it is made."""
    if count > MAX_CHARACTERS:
        raise too_long(count)


def too_many_steps() -> TooLarge:
    return TooLarge(f"a template takes more than {MAX_STEPS} steps on one line: let its `range` loop over less")


def too_deep() -> TooLarge:
    return TooLarge(f"templates call each other more than {MAX_DEPTH} deep")
