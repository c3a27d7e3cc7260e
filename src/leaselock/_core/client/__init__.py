"""What a client does.

`client_core` makes the lock objects (`mutex`). An acquire runs like this: `acquisition.acquire`
makes a `Hold`, enters it in the table of the client (`claim_registry`), and asks the store. If the
answer is a grant, the row is held and `lease_handle` is what the user gets. Otherwise `waiting`
waits and asks again, `attempts` decides for how long, and `withdrawal` leaves the queue.

A lease ends by one assignment (`lease_reference`). `release` sends the request, and the row
leaves the table when the store has confirmed it. The renewer (`renewer`) renews the rows in hand,
and `unfinished` ends all others: whatever was interrupted is finished there.
"""
