"""The processes of a benchmark: each runs one module of this package and reports JSON lines."""
