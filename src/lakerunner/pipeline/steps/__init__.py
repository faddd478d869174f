"""Arrow in, Arrow out: what happens to rows between reading and writing."""
