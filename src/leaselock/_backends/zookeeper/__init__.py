"""Locks in ZooKeeper: a claim is an ephemeral node, which lives as long as its session."""
