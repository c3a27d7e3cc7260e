"""Storms: processes on real stores, faults drawn from a seed, and a proof from what they logged."""
