"""The protocol `document`: locks in any store that can compare and set one value.

A store is an `adapter`. A request comes to `backend`, and `engine` carries it out: it decides by
`_core.rows.rules` on a `row` made of the document's `content`, and writes the result if no other
client was faster. `known` has the documents as this client has seen them, `waiting` the claims
that wait for a change, which a `watching` or `listening` adapter reports. `http` serves the
adapters that speak HTTP. docs/internals/document.md explains the times; verification/hazards
lists what "hazard D2" and others mean.
"""
