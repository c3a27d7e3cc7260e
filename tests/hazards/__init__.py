"""The hazard table on private servers: `python -m tests.hazards`, which `make hazards` runs."""
