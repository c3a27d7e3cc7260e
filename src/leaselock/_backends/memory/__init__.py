"""Locks within one process, for tests, examples, and programs of one process."""
