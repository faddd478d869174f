"""HTTP, server-sent events and gRPC: the only async code."""

from __future__ import annotations

import os

# gRPC's library reads this variable when it is imported. By default it writes its own lines to standard error, for
# example if a port is in use; we get such errors as exceptions and log them ourselves.
os.environ.setdefault("GRPC_VERBOSITY", "NONE")
