"""Redlock: one lock on several independent masters, held by the client that has a majority of them."""
