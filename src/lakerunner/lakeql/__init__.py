"""SQL over the lake: text to plan. No I/O."""
