"""Series x steps: the expressions that PromQL (and every language of metrics) compiles into, and how they are
evaluated.

Comes in: an expression tree and a source of samples. Goes out: a value at every step. What always holds: an expression
means the same wherever it is evaluated, whole or split over workers; nothing here does I/O.
"""
