"""Locks in ZooKeeper: a claim is an ephemeral node, which lives as long as its session.

Read `queue` first: the recipe, in order. `queue_order` says who stands before whom, `conversions`
how a hold changes its mode, `semaphores` how permits are taken, `single` the protocol of one
node. `contender` is what a client knows of one claim; `session_backend` has what ends with the
session: holds, waits, and nodes that are still to be deleted. `connection` is the session on
kazoo, for threads, and `asyncio_connection` for asyncio. docs/internals/zookeeper-recipe.md has
the recipe step by step; verification/hazards lists what "hazard I1" and others mean.
"""
