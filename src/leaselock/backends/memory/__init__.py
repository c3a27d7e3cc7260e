"""Locks inside one process, for tests, examples and programs that run nowhere else."""
