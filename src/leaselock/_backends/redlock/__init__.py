"""Redlock: one lock on several independent masters, held by the client with a majority of them.

`protocol` comes first. `quorum` asks the masters, `votes` counts one try, `claim_votes` is what
outlives a try, and `pending_releases` repeats what was not confirmed.
"""
