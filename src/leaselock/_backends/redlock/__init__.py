"""Redlock: one lock on several independent masters, held by the client with a majority of them."""
