"""Chaos runs on private servers: random faults, and a check of what the workers recorded."""
