"""Health of one process: what its parts last said of themselves.

Live: no part has failed for good. Ready: every part that must run has started and none is waiting for a dependency.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass, field


@dataclass
class Health:
    """Parts report in; probes read. Safe between threads."""

    _parts: dict[str, str] = field(default_factory=dict)
    _failed: str | None = None
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def starting(self, part: str) -> None:
        with self._lock:
            self._parts[part] = "starting"

    def well(self, part: str) -> None:
        with self._lock:
            self._parts[part] = ""

    def waiting(self, part: str, reason: str) -> None:
        with self._lock:
            self._parts[part] = reason

    def fail(self, part: str, reason: str) -> None:
        with self._lock:
            self._failed = f"{part}: {reason}"

    @property
    def live(self) -> bool:
        return self._failed is None

    @property
    def ready(self) -> bool:
        with self._lock:
            return self._failed is None and not any(self._parts.values())

    def report(self) -> dict[str, object]:
        """What /healthz shows."""
        with self._lock:
            parts = {part: reason or "ok" for part, reason in sorted(self._parts.items())}
            status = "failed" if self._failed else "ok" if set(parts.values()) <= {"ok"} else "degraded"
            report: dict[str, object] = {"status": status, "parts": parts}
            return report | {"failed": self._failed} if self._failed else report
