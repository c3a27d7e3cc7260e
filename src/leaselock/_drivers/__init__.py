"""Drivers: how the effects of the core are performed. They know no backend."""
