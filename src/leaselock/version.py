"""The version of leaselock. This module imports nothing, so every other module may import it."""

__version__ = "0.1.0"
