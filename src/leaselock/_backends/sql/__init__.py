"""Locks in a database: PostgreSQL, MySQL and MariaDB."""
