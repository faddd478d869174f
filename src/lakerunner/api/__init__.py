"""HTTP, SSE and gRPC. The only async code."""

from __future__ import annotations

import os

# gRPC's library, which reads this when it is imported, writes lines of its own to standard error, for a taken port
# among others. What goes wrong reaches us as an exception.
os.environ.setdefault("GRPC_VERBOSITY", "NONE")
