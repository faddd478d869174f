"""PromQL: parse text to an expression over series, compile it to a plan. No I/O."""
