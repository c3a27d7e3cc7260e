"""Locks in a database: PostgreSQL, MySQL and MariaDB.

`store` opens it and makes the backend of one protocol.

* `lease` decides by `_core.rows.rules` on a row: `lock_row` reads what the rules need and writes
  the difference, `records` has its rows by name.
* `session_backend` is that of "row" and "advisory", whose locks the server keeps with a session:
  `session_pool` has the connections of holds, `session_state` the states of each, `session_locks`
  the statements on it.

A request takes a connection from `pool`, and `executor` sends a script of `statements` on it: by
`postgres` or `mysql`, which say what to send and how to read the answer.
docs/internals/sql-protocols.md has the protocols step by step; verification/hazards lists what
"hazard D7" and others mean.
"""
