"""One module per input format: bytes to rows.

Importing this sets where numba keeps the machine code of the pipeline's jitted functions. numba looks only at the file
of the function itself, not at those whose functions it calls, so the place is named after all of our sources: when
one of them changes, everything is compiled anew.
"""

from __future__ import annotations

from hashlib import blake2b
from pathlib import Path
from typing import Any

import numba

config: Any = numba.config


def _cache_directory() -> str:
    here = Path(__file__).parent
    sources = blake2b(digest_size=8)
    for path in sorted([*here.glob("*.py"), *here.parent.glob("steps/*.py")]):
        sources.update(path.read_bytes())
    root = Path(config.CACHE_DIR) if config.CACHE_DIR else here.parent / "__pycache__"
    return str(root / f"kernels-{sources.hexdigest()}")


config.CACHE_DIR = _cache_directory()
