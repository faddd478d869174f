"""What selectors of PromQL select: series by their matchers; samples by staleness, lookback and modifiers.

Functions build on this folder, and it imports none of them.
"""
