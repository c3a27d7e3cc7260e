"""What authors of stores and the project's own tests use: the conformance suite, private servers, a
fault proxy, and fault campaigns. It is not installed: run it from a checkout.
"""
