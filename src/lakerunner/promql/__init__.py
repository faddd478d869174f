"""PromQL: text in, an expression over series (plan/vectors) out. No I/O."""
