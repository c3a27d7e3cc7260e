"""The hazard table: what the literature warns of, played for real on every way of locking.

``leaselock hazards`` prints it. The parts: `ways` are the ways of locking, ours and the naive ones;
`catalogue` has the hazards; `play` plays them, with processes of `crew` on the stores of `places`.
"""
