"""Benchmarks of leaselock beside other libraries, measured in one run.

`python -m benchmarks [--quick] [--json FILE] [NAME...]`. The speed of a machine varies, so the
contestants are measured alternately, in random order and in several rounds, and compared within
each round. Ratios are therefore more reliable than times.
"""
