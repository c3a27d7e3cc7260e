"""Redis and Valkey: locks in the format of Redisson, handed from holder to waiter by the server.

`store` opens it and makes the backend of one format: `scripted_backend` for the formats with a
queue, which only the scripts in `scripts` change; `legacy_formats` for the others. `keys` and
`records` are the layout, to the byte, as docs/internals/redis-keys.md has it. `executor` sends a
command to the server that has its key, on a connection of `blocking` (threads) or `multiplexed`
(asyncio). `listener` has the waiting claims and what wakes them, `queue_state` what their
messages say, `index` the active names. verification/hazards lists what "hazard E1" and others
mean.
"""
