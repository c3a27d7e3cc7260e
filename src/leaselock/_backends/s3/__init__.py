"""Locks in a bucket of S3, or of a service with its interface."""
