"""PromQL: text in, an expression over series (series) out. No I/O."""
