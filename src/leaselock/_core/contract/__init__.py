"""What the core expects of a driver and of a store.

A client awaits *effects* (`effects`), and a driver carries them out: it makes a request of a node,
waits, sleeps, starts an operation. `backend` has the requests, their replies and `Backend`, which
a store implements; `layout` and `marks` say what a store writes so that other versions of this
library can read it.

A request passes through it like this: the client calls a method of `Backend`, which returns an
awaitable; that awaits `Call(node, request, until, then)`; the driver of threads or of asyncio has
the node send the request before `until`, and `then` makes the answer of its reply.
"""
