"""Series over steps, for every metric language: expressions, their values and their evaluation.

Comes in: an expression tree and a source of samples. Goes out: a value at every step. What always holds: an expression
means the same wherever it is evaluated, whole or split over workers; nothing here does I/O or names a language. The
modules of this folder are what the folders below share, and import none of them.
"""
