"""OTLP protobuf to rows: the wire check, the walkers of each signal, and the arrays that they fill.

Importing this package sets where numba caches the machine code of the pipeline's kernels, before the first of them is
defined.
"""

import lakerunner.pipeline.read.kernel_cache  # noqa: F401
