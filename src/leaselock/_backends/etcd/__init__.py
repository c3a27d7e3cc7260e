"""Locks in etcd v3: each is one key, written by compare and set over the JSON gateway."""
