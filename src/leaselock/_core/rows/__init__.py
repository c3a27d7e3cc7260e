"""What a store decides that keeps the holds and claims of a lock as rows. It knows no client.

A request of a client arrives at such a store: memory, an embedded file, the lease tables of
databases, the documents of object stores. The store checks what it has read (`records`) and
asks `rules.answer`, in its own transaction, which holds and claims there are then: a grant, or
why not. `entry_row` has the rows as dictionaries, for a store that writes a lock as a whole.
`queue` is the client's side of a store that has its own queue and sends notifications.
`session_leases` are for holds that end with a session; `maintenance` is what several stores clean
up in the same way.
"""
