"""Locks in Kubernetes: each is one object of the kind Lease of coordination.k8s.io."""
