"""The hazard table on private servers, which `python -m verification.hazards` runs."""
