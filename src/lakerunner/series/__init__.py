"""Expressions over series and steps, for every metric language: the tree, its values and its evaluation.

Comes in: an expression tree and a source of samples. Goes out: a value at every step. What always holds: an expression
means the same wherever it is evaluated, as a whole or split over workers; nothing here does I/O or names a language.
The folders below share the modules of this folder, which import none of them.
"""
