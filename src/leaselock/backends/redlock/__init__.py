"""Redlock: one lock on several independent masters, held by whoever has most of them."""
