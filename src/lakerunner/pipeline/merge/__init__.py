"""Several segments to one: rows merged in order, with what stands beside them and what the index is told."""
