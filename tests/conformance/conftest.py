"""Servers that several of these modules share."""

from tests.servers.databases import as_worker, mariadb, postgres
from tests.servers.ensembles import ensemble, keeper

__all__ = ["as_worker", "ensemble", "keeper", "mariadb", "postgres"]
