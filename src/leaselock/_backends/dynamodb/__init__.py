"""Locks in a table of Amazon DynamoDB."""
