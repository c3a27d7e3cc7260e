"""Servers that several of these modules share."""

from tests.servers.databases import mariadb, postgres
from tests.servers.ensembles import ensemble

__all__ = ["ensemble", "mariadb", "postgres"]
