"""Measured, not asserted: what leaselock costs, next to its peers, in one and the same run.

`python -m benchmarks [--quick] [--json FILE] [NAME...]`. A machine has moods, so contestants take
turns in random order, several rounds long, and are compared within each round: ratios come first.
"""
