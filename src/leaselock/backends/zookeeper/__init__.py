"""Locks in ZooKeeper: an ephemeral node is a contender, and its session is its life."""
