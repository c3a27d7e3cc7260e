"""The locking protocol: no I/O, no clock, no threads, no event loop.

`contract`: what a driver does for the core, and what a store does.
`client`: what a client does: one coroutine for each operation, and a table of its claims.
`rows`: what a store decides that keeps holds and claims as rows.
"""
