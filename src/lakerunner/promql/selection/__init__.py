"""What selectors of PromQL select: series by their matchers; samples by staleness, lookback and modifiers.

Functions build on this folder; it does not import them.
"""
