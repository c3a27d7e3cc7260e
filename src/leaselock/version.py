"""Which leaselock this is; it stands alone, so that everything may know it."""

__version__ = "0.1.0"
