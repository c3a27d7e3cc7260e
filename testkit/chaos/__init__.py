"""Chaos tests: worker processes on a real store are killed, frozen and disconnected at random.

The faults are drawn from a seed. Each worker records what it observes; the verdict is computed from
these records alone, by `checker`, whose rules are tested with planted violations.
"""
