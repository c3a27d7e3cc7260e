"""The hazard table on private servers, which `make hazards` runs."""
