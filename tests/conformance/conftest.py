"""Servers that several of these modules share."""

from tests.servers.ensembles import ensemble

__all__ = ["ensemble"]
